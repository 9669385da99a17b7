"""Comparing documents: equal ones are equal, a changed row, case or operation is said, and other files are refused."""

import json
from dataclasses import replace

import pytest

from harness.cli.main import main
from harness.golden.comparing import compare_goldens, compare_runs
from harness.golden.document import read_golden
from harness.scope import ROOT

SHIPPED = ROOT / "fixtures" / "golden" / "strata-mini-mix.json"
RUN = {"suites": [{"name": "batch", "cases": [{"name": "slots-2", "verdict": "exact", "n_rows": 4, "n_rows_equal": 4}]}]}


def test_a_file_equals_itself(capsys):
    assert main(["compare", str(SHIPPED), str(SHIPPED)]) == 0
    assert "10,636 of 10,636 rows equal" in capsys.readouterr().out


def test_a_changed_row_and_a_changed_operation_are_said():
    golden = read_golden(SHIPPED)
    first = golden.items[0]
    row = replace(golden, items=(replace(first, read=("0" * 16, *first.read[1:])), *golden.items[1:]))
    told = compare_goldens(golden, row)
    assert told.n_compared - told.n_equal == 1 and told.lines == (f"{first.label}: 1 of 38 rows differ, first row 0",)
    operation = replace(golden, operations=golden.operations | {(3, "qsa.attended"): "0" * 16})
    assert "attention over the chosen cells, layer 3" in compare_goldens(golden, operation).lines[0]


def test_another_mode_and_a_missing_item_are_said():
    golden = read_golden(SHIPPED)
    lines = compare_goldens(golden, replace(golden, rounding="grouped", items=golden.items[1:])).lines
    assert "rounding: canonical | grouped" in lines and f"{golden.items[0].label}: only on the left" in lines


def test_runs_are_compared_case_by_case():
    changed = json.loads(json.dumps(RUN))
    changed["suites"][0]["cases"][0] |= {"verdict": "differs", "n_rows_equal": 3}
    assert compare_runs(RUN, RUN).is_equal
    assert compare_runs(RUN, changed).lines == ("batch slots-2: exact, 4 of 4 rows equal | differs, 3 of 4 rows equal",)
    assert compare_runs(RUN, {"suites": []}).lines == ("batch slots-2: only on the left",)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "other"}'])
def test_other_files_are_refused(tmp_path, capsys, text):
    (tmp_path / "x.json").write_text(text)
    assert main(["compare", str(SHIPPED), str(tmp_path / "x.json")]) == 2
    assert "x.json" in capsys.readouterr().err
