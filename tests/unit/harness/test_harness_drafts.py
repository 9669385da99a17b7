"""Scripted drafts are right and wrong where their pattern says, and the same at every run."""

import pytest

from harness.drafts import BEHIND_THE_END, PATTERNS, DraftScript
from strata.errors import UsageError

ANSWER = list(range(100, 140))
VOCABULARY = 4096


def windows(pattern, width, n, request=0, seed=1):
    """Which drafts of the first n windows are right, each window as a list of booleans."""
    propose = DraftScript(width, pattern, seed).source(request, ANSWER, VOCABULARY)
    return [[draft == right for draft, right in zip(propose(ANSWER[:3]), ANSWER[3:], strict=False)] for _ in range(n)]


def test_right_drafts_are_the_reference_answer():
    assert windows("right", 5, 2) == [[True] * 4] * 2


def test_wrong_drafts_are_wrong_at_once_and_right_behind():
    assert windows("wrong", 4, 2) == [[False, True, True]] * 2


def test_a_cycle_accepts_every_count_in_turn():
    accepted = [row.index(False) if False in row else len(row) for row in windows("cycle", 4, 8)]
    assert accepted == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("request_number", range(6))
def test_ragged_requests_accept_by_their_number(request_number):
    (row,) = windows("ragged", 3, 1, request_number)
    assert (row.index(False) if False in row else len(row)) == request_number % 3


def test_mixed_drafts_are_right_and_wrong_in_every_place():
    columns = list(zip(*windows("mixed", 8, 60), strict=True))
    assert all(True in column and False in column for column in columns)


def test_mixed_drafts_depend_on_the_seed_and_on_nothing_else():
    assert windows("mixed", 8, 9) == windows("mixed", 8, 9)
    assert windows("mixed", 8, 9) != windows("mixed", 8, 9, seed=2)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_drafts_go_on_behind_the_reference_answer_and_stay_in_the_vocabulary(pattern):
    propose = DraftScript(8, pattern).source(0, ANSWER, VOCABULARY)
    drafts = propose(ANSWER[:-2])
    assert len(drafts) == 7 and BEHIND_THE_END in drafts[2:]
    assert all(0 <= draft < VOCABULARY for draft in drafts)


@pytest.mark.parametrize(("width", "pattern", "named"), [(4, "odd", "pattern=odd"), (0, "mixed", "width=0")])
def test_a_script_that_makes_no_sense_is_refused(width, pattern, named):
    with pytest.raises(UsageError, match=named):
        DraftScript(width, pattern)
