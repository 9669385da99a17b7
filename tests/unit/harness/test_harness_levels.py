"""Cases of level 2: left out at level 1 unless they are named."""

import pytest

from harness.judging import select
from harness.suites.contract import thorough
from harness.suites.table import SUITES, suites_named
from tests.unit.harness.scopes import scope


@pytest.mark.parametrize("name", ["tier", "pool", "loans"])
def test_thorough_cases_run_at_level_2_and_where_they_are_named(name):
    suites = suites_named([name])
    every = [case for _, case in select(suites, scope(), every=True).cases]
    kept = [case for _, case in select(suites, scope()).cases]
    left_out = [case.name for case in every if case.thorough]
    assert left_out and [case.name for case in kept] == [case.name for case in every if not case.thorough]
    assert [case.name for _, case in select(suites, scope(), left_out[0]).cases] == left_out[:1]
    assert {case.name for case in every} <= {case.name for _, case in select(suites, scope(level=2)).cases}


def test_controls_are_judged_at_every_level():
    assert not [case.name for suite in SUITES.values() if suite.why_not() is None for case in suite.cases(scope()) if case.is_control and case.thorough]


def test_a_pattern_marks_what_it_names():
    cases = SUITES["batch"].cases(scope())
    marked = thorough(cases, cases[0].name, "slots-*")
    assert [case.thorough for case in marked] == [case.name == cases[0].name or case.name.startswith("slots-") for case in cases]
