"""Golden files: they hold, they notice a changed rounding and name its operation, and they refuse what is not theirs."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest

from harness.cli.main import main
from harness.faults.ulp import UlpFault, Where
from harness.golden import recording
from harness.golden.checking import Way, check_way, require_same_model, ways
from harness.golden.document import Golden, read_golden, write_golden
from harness.golden.recording import golden_items, operation_hashes
from harness.report.findings import from_check
from harness.report.github import annotation, summary
from harness.report.html import page
from harness.report.junit import write_junit
from harness.options import Options
from harness.scope import MODEL, ROOT
from harness.workload import Item
from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings
from strata.errors import UsageError
from strata.model.model import load_model
from strata.split.probes import Probes

SHIPPED = ROOT / "fixtures" / "golden" / "strata-mini-mix.json"
SETTINGS = EngineSettings(context=512)


@pytest.fixture(scope="module")
def model():
    return load_model(MODEL)


@pytest.fixture(scope="module")
def golden(model):
    """Two short prompts, recorded here and now."""
    items = (Item("a-0", tuple(range(40, 60)), 4), Item("b-1", (7, 300, 12), 3))
    shipped = read_golden(SHIPPED)
    return Golden(
        shipped.model, "canonical", "f16", shipped.rotary, {}, {}, golden_items(model, SETTINGS, items), ("b-1",),
        operation_hashes(model, SETTINGS, items[1:]),
    )


def test_a_record_holds_in_other_chunks_and_stages(model, golden):
    split = replace(SETTINGS, layer_split=(5,), devices="host,host", prefill=6, batch=2)
    for settings in (SETTINGS, split):
        result = check_way(golden, model, Way("w", settings))
        assert result.is_exact and result.n_rows == 20 + 4 + 3 + 3


@pytest.mark.parametrize("point, layer", [("gdn.scan", 4), ("qsa.attended", 7), ("moe.router", 0), ("logits", -1)])
def test_one_changed_rounding_is_named_in_plain_words(model, golden, monkeypatch, point, layer):
    def changed(model, settings, probe=None):
        fault = UlpFault(Where(point, layer))
        return Engine(model, settings, fault if probe is None else Probes([fault, probe]))

    monkeypatch.setattr(recording, "Engine", changed)
    result = check_way(golden, model, Way("changed", SETTINGS))
    from harness.ledger.points import in_words, point_named

    assert not result.is_exact and result.differences
    assert result.operation == in_words(point, layer)
    assert result.source == point_named(point).source
    finding = from_check([("golden.json", result)], Options())[0]
    assert in_words(point, layer) in annotation(finding) and annotation(finding).startswith("::error ")
    assert in_words(point, layer) in summary("check", [finding])
    assert finding.verdict in page("check", [finding])


def test_a_tampered_token_and_a_tampered_row_are_found(model, golden):
    first = golden.items[1]
    for changed in (replace(first, tokens=(5, *first.tokens[1:])), replace(first, read=("0" * 16, *first.read[1:]))):
        result = check_way(replace(golden, items=(changed,)), model, Way("w", SETTINGS))
        assert len(result.differences) == 1 and result.n_equal < result.n_rows


def test_a_golden_file_comes_back_as_it_was_written(golden, tmp_path):
    write_golden(tmp_path / "g.json", golden)
    assert read_golden(tmp_path / "g.json") == golden


@pytest.mark.parametrize("text", ["", "[]", '{"format": "something else"}'])
def test_what_is_no_golden_file_is_refused(tmp_path, text):
    (tmp_path / "g.json").write_text(text)
    with pytest.raises(UsageError, match="strata-harness record"):
        read_golden(tmp_path / "g.json")


def test_a_record_of_another_model_is_refused(model, golden):
    with pytest.raises(UsageError, match="another|model"):
        require_same_model(replace(golden, model="0" * 32), model, 4096)
    with pytest.raises(UsageError, match="rotary"):
        require_same_model(replace(golden, rotary="0" * 32), model, 4096)
    require_same_model(golden, model, 4096)


def test_level_two_checks_in_many_ways(model):
    names = [way.name for way in ways(SETTINGS, model.config.n_layers, 2)]
    assert len(set(names)) == len(names) >= 9


def test_the_command_checks_the_shipped_file_and_writes_what_ci_reads(tmp_path, capsys):
    outputs = {name: tmp_path / name for name in ("j.xml", "p.html", "r.json")}
    code = main(["check", "--items", "2", "--junit-xml", str(outputs["j.xml"]), "--html", str(outputs["p.html"]), "--json", str(outputs["r.json"])])
    assert code == 0 and "exact" in capsys.readouterr().out
    assert xml.parse(outputs["j.xml"]).getroot().get("failures") == "0"
    assert json.loads(outputs["r.json"].read_text())["n_rows"] == 22 + 16 + 26 + 16
    assert "<table>" in outputs["p.html"].read_text()


def test_the_command_says_that_another_rounding_mode_differs(capsys):
    assert main(["check", "--items", "1", "--rounding", "grouped"]) == 1
    out = capsys.readouterr().out
    assert "differs" in out and "first operation that changed" in out


def test_the_command_refuses_a_file_that_is_not_there(capsys):
    assert main(["check", "no-such-file.json"]) == 2
    assert "no-such-file.json" in capsys.readouterr().err


def test_a_failing_case_fails_in_junit(tmp_path, model, golden):
    wrong = replace(golden, items=(replace(golden.items[1], read=("0" * 16,) * 3),))
    finding = from_check([("g.json", check_way(wrong, model, Way("w", SETTINGS)))], Options())[0]
    write_junit(str(tmp_path / "j.xml"), "check", [finding])
    root = xml.parse(tmp_path / "j.xml").getroot()
    assert root.get("failures") == "1" and root.find(".//failure") is not None
