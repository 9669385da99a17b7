"""docs/ROUNDING_MODES.md is held to the harness: every mode, every cell backed by cases that say what it says."""

import re
from pathlib import Path

import pytest

from harness.suites.table import SUITES
from strata.numerics.rounding import MODES
from tests.unit.harness.scopes import scope

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "ROUNDING_MODES.md"
CELLS = re.findall(r"^\| `(\w+)` \| (.+) \| ((?:`[\w-]+/[\w.-]+`(?:, )?)+) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)


def cases() -> dict[str, object]:
    """Every case of level 1 by suite and name."""
    return {f"{suite.name}/{case.name}": case for suite in SUITES.values() if suite.why_not() is None for case in suite.cases(scope())}


def test_every_mode_has_a_line_of_its_own_and_cells():
    modes = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|`]+ \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert modes == list(MODES) and {mode for mode, _, _ in CELLS} == set(MODES)


@pytest.mark.parametrize(("mode", "words", "named"), CELLS)
def test_a_cell_is_backed_by_cases_that_say_the_same(mode, words, named):
    found = [cases()[name] for name in re.findall(r"`([^`]+)`", named)]
    assert found
    for case in found:
        assert case.is_control == ("**differs**" in words)
        assert (case.left.settings.rounding, case.right.settings.rounding) == (mode, mode)


def test_every_control_stands_in_the_document():
    named = {name for _, _, cells in CELLS for name in re.findall(r"`([^`]+)`", cells)}
    assert {name for name, case in cases().items() if case.is_control} <= named
