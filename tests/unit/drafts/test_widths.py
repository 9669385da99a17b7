"""The width of windows: what drafts are worth, learned without a clock."""

import pytest

from strata.rows import WindowCosts
from strata.windows.widths import EXPLORE_EVERY, WidthPolicy, match_class, probability_class

CHEAP, DEAR = WindowCosts(row=0.1, draft=0.05), WindowCosts(row=0.9, draft=0.3)


def test_a_likely_draft_is_worth_a_cheap_row_and_not_a_dear_one():
    assert WidthPolicy(CHEAP).takes(0.5) and not WidthPolicy(DEAR).takes(0.5)


def test_the_full_policy_takes_everything():
    policy = WidthPolicy(DEAR, is_full=True)
    assert policy.takes(0.0) and policy.wants_step(6, 0.0) and policy.suffix_rows(3, 0.0, 7) == 7


def test_rows_behind_a_match_end_where_the_path_is_too_unlikely():
    assert WidthPolicy(DEAR).suffix_rows(3, 0.0, 7) < WidthPolicy(CHEAP).suffix_rows(3, 0.0, 7) <= 7
    assert WidthPolicy(CHEAP).suffix_rows(3, 0.0, 7) <= WidthPolicy(CHEAP).suffix_rows(30, 0.0, 7)


def test_drafts_that_fail_are_given_up_and_tried_again_after_a_while():
    policy = WidthPolicy(WindowCosts(row=0.4, draft=0.1))
    assert policy.wants_step(0, 1.0)
    for _ in range(60):
        policy.learn_steps([0.9], 1, 0)
        policy.learn_window(2, 1, 1)
    assert not policy.wants_step(0, 1.0)
    for _ in range(EXPLORE_EVERY):
        policy.learn_window(1, 0, 1)
    assert policy.wants_step(0, 1.0)


def test_drafts_that_hold_are_trusted_more():
    policy = WidthPolicy(CHEAP)
    before = policy.step_share(0.35)
    for _ in range(40):
        policy.learn_steps([0.35], 1, 1)
    assert policy.step_share(0.35) > 0.9 > before


def test_a_match_that_lies_is_trusted_less():
    policy = WidthPolicy(WindowCosts(row=0.4, draft=0.1))
    before = policy.suffix_rows(20, 0.0, 7)
    for _ in range(40):
        policy.learn_suffix(20, 3, 0)
    assert policy.suffix_rows(20, 0.0, 7) == 0 < before


def test_a_fast_pace_raises_the_bar():
    policy = WidthPolicy(WindowCosts(row=0.3, draft=0.1))
    assert policy.pace == 1.0 and policy.takes(0.4)
    for _ in range(40):
        policy.learn_window(4, 3, 4)
    assert policy.pace > 1.5 and not policy.takes(0.4)


def test_a_slow_pace_never_falls_below_decoding_without_drafts():
    policy = WidthPolicy(DEAR)
    for _ in range(40):
        policy.learn_window(8, 7, 1)
    assert policy.pace == 1.0


@pytest.mark.parametrize(("probability", "index"), [(0.0, 0), (0.0999, 0), (0.1, 1), (0.95, 9), (1.0, 9), (float("nan"), 0)])
def test_probabilities_fall_into_ten_classes(probability, index):
    assert probability_class(probability) == index


@pytest.mark.parametrize(("length", "index"), [(3, 0), (4, 0), (5, 1), (8, 1), (9, 2), (16, 2), (17, 3), (32, 3)])
def test_matches_fall_into_four_classes(length, index):
    assert match_class(length) == index


def test_the_same_history_gives_the_same_policy():
    def history(policy: WidthPolicy) -> list[bool]:
        seen = []
        for i in range(200):
            seen.append(policy.wants_step(0, 1.0))
            policy.learn_steps([(i % 7) / 7, 0.5], 1 + i % 2, i % 3)
            policy.learn_window(2 + i % 2, 2, 1 + i % 3)
        return seen

    first = history(WidthPolicy(DEAR))
    assert first == history(WidthPolicy(DEAR)) != history(WidthPolicy(CHEAP))
