"""`strata-harness locate` names what differs, repeats itself, and refuses what it cannot search."""

import json
import re
import shlex

import pytest

from tests.cli.harness_calls import harness, prompts_file, refusal

PLANT = "gdn.scan:layer=5:position=7:request=1:most=1"


@pytest.fixture
def small(tmp_path):
    return ("--prompts", prompts_file(tmp_path), "--max-new", 4)


def test_a_planted_fault_of_a_suites_case_is_located_with_exit_code_1(small):
    outcome = harness("locate", "batch:slots-2", "--plant", PLANT, *small)
    assert (outcome.code, outcome.err) == (1, "")
    for text in (
        "operation: gated delta net: recurrent scan, layer 5", "strata/host/gdn.py: scan", "position 7", "1 ULP apart; 1 of 384 elements differ",
        "equal: gated delta net: recurrent memory after the row, layer 5", "request 0 position 7 in slot 0, request 1 position 7 in slot 1",
    ):
        assert text in outcome.out
    assert re.search(r"^located: gated delta net: recurrent scan, layer 5 \(.*position 7\); \d passes in", outcome.out, re.M)
    (command,) = re.findall(r"^repeat: strata-harness (.*)$", re.sub(r"\n(?=[^ ]*/prompts)", " ", outcome.out), re.M)
    assert "--plant gdn.scan:layer=5" in command
    assert shlex.split(command)[:2] == ["locate", "batch:slots-2"]


def test_equal_arms_end_with_exit_code_0(small):
    outcome = harness("locate", "--left", "alone", "--right", "batch=2 layer_split=6 split_device=0 prefill=4", *small)
    assert outcome.code == 0
    assert "equal: every record compared is equal; 2 passes" in outcome.out


def test_a_real_difference_is_located_and_written_as_json(small, tmp_path):
    path = tmp_path / "finding.json"
    outcome = harness("locate", "--left", "rounding=canonical", "--right", "rounding=grouped", "--json", path, *small)
    document = json.loads(path.read_text())
    assert outcome.code == document["exit_code"] == 1
    assert (document["verdict"], document["cause"]["point"]) == ("located", "moe.hidden")
    assert document["cause"]["left"]["company"][0]["request"] == document["cause"]["request"]
    assert {state["state"] for state in document["cause"]["inputs"]} == {"equal"}
    assert (document["left"]["rounding"], document["right"]["rounding"]) == ("canonical", "grouped")
    assert [item["level"] for item in document["passes"]] == [1, 2, 3]


def test_json_on_stdout_stands_alone(small):
    outcome = harness("locate", "--left", "", "--right", "batch=2", "--items", 1, "--json", "-", *small)
    assert json.loads(outcome.out)["verdict"] == "equal"


def test_a_plan_of_fuzz_is_searched():
    plan = json.dumps({"slots": 2, "drafts": "cycle-5", "asks": [[0, 6, 4], [1, 5, 4]]})
    outcome = harness("locate", "--plan", plan, "--plant", "moe.output:layer=3:position=6:most=1", "--deep")
    assert outcome.code == 1
    assert "operation: experts: combination, layer 3" in outcome.out


def test_a_fault_that_never_happens_is_not_judged(small):
    outcome = harness("locate", "batch:slots-2", "--plant", "gdn.scan:layer=3", *small)
    assert outcome.code == 2
    assert "unjudged: the planted fault never met a record: gdn.scan:layer=3" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "it needs one pair of arms"),
        (("batch:slots-2", "--left", "alone"), "it needs one pair of arms"),
        (("batch:nothing",), "case=batch:nothing: there is no such case; use one of batch:slots-2"),
        (("nothing:slots-2",), "suite=nothing"),
        (("--right", "batch=x"), "batch=x: its value does not fit batch"),
        (("--right", "size=4"), "right=size=4: there is no setting size"),
        (("--right", "drafts=4-upwards"), "pattern=upwards"),
        (("--right", "layer_split=40"), "layer_split=40"),
        (("batch:slots-2", "--items", "0"), "items=0"),
        (("batch:slots-2", "--plant", "gdn.scan:when=3"), "`when=3` is no condition"),
        (("batch:slots-2", "--json", "/nowhere/at/all.json"), "json=/nowhere/at/all.json"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(arguments, text):
    assert text in refusal("locate", *arguments)
