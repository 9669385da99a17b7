"""The command that makes a card's evidence: what it runs is there to be run, and it tells how each part ended."""

import json
from pathlib import Path

import pytest

from harness.suites.table import SUITES
from tests.gpu.evidence import LARGEST_FILE, Part, Runner, chosen, first_parts, lanes, main, unknown_names

FOLDER = Path(__file__).parents[3] / "docs" / "evidence"
WRITE = "import json, sys; json.dump(list(range({n})), open(sys.argv[2], 'w')); print('done')"


def everything(n_cards: int) -> list[Part]:
    return [*first_parts(), *(part for lane in lanes(n_cards) for part in lane)]


def test_every_suite_named_is_one_and_every_file_has_its_own_name():
    parts = everything(2)
    assert len({part.name for part in parts}) == len(parts)
    named = {suite for part in parts if "--suite" in part.command for suite in part.command[part.command.index("--suite") + 1].split(",")}
    assert named <= set(SUITES) and {"device", "batch", "split", "tier", "pool"} <= named


def test_every_file_of_a_card_in_the_evidence_is_made_but_those_of_earlier_states():
    made = {f"{part.name}.json" for part in everything(2) if part.writes}
    assert {path.name for path in FOLDER.glob("h200-*.json")} - made == {"h200-bench-gpu-other.json", "h200-golden-host.json"}


def test_parts_are_chosen_by_name_and_a_name_of_none_is_an_error(tmp_path, capsys):
    parts, names = first_parts(), [part.name for part in first_parts()]
    assert [part.name for part in chosen(parts, None, None)] == names
    assert [part.name for part in chosen(parts, "h200-bench-tier,tests", None)] == ["h200-bench-tier"]
    assert [part.name for part in chosen(parts, None, "h200-bench-tier,memory")] == [n for n in names if n not in ("h200-bench-tier", "memory")]
    assert unknown_names(1, "tests,h200-tier", "h200-two-cards") == ["h200-two-cards"] and not unknown_names(2, None, "h200-two-cards")
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path / "made"), "--only", "h200-nothing"])
    assert stopped.value.code == 2 and "no such part: h200-nothing" in capsys.readouterr().err and not (tmp_path / "made").exists()


def told_by(folder: Path, limit_s: float, all_lanes: list[list[Part]]) -> tuple[Runner, list[str]]:
    told: list[str] = []
    runner = Runner(folder, limit_s, told.append)
    runner.run_beside(all_lanes)
    return runner, told


def test_parts_that_end_well_leave_their_files_on_one_line_where_they_are_large(tmp_path):
    runner, told = told_by(tmp_path, 60, [[Part("small", ("-c", WRITE.format(n=3)))], [Part("large", ("-c", WRITE.format(n=60000)))]])
    assert not runner.n_bad and sorted(line.split(",")[0] for line in told) == ["large: 0", "small: 0"]
    assert json.loads((tmp_path / "small.json").read_text()) == [0, 1, 2]
    large = (tmp_path / "large.json").read_text()
    assert LARGEST_FILE < 60000 * 7 and ", " not in large and json.loads(large)[-1] == 59999


def test_a_part_that_fails_names_what_failed_and_the_next_one_still_runs(tmp_path):
    fails = Part("fails", ("-c", "print('[gw1] FAILED tests/gpu/test_a.py::test_b'); print('1 failed'); raise SystemExit(1)"), False)
    runner, told = told_by(tmp_path, 60, [[fails, Part("small", ("-c", WRITE.format(n=1)))]])
    assert runner.n_bad == 1 and told[0].startswith("fails: 1, ") and told[0].endswith("1 failed")
    assert told[1].strip() == "[gw1] FAILED tests/gpu/test_a.py::test_b" and told[2].startswith("small: 0")


def test_a_part_that_is_cut_off_has_said_what_it_knew(tmp_path):
    slow = Part("slow", ("-u", "-c", "print('FAILED early'); import time; time.sleep(60)"), False)
    runner, told = told_by(tmp_path, 2, [[slow]])
    assert runner.n_bad == 1 and told[0].startswith("slow: cut off") and told[1].strip() == "FAILED early"
