"""A verdict is exact only where all is equal, the feature happened, and the arms ran differently."""

from dataclasses import replace

import pytest

from harness.arms import Arm
from harness.comparison import compare
from harness.verdicts import CaseResult, collect, exit_code, judge, worst
from strata.batch.settings import EngineSettings
from tests.unit.harness.fakes import answer, case, outcome, suite

GOOD = answer([5, 6])


def verdict_of(left, right, features=("turns",)):
    """The verdict and the reason for two outcomes."""
    comparison = compare(left.answers, right.answers, ["chat-0"] * len(left.answers))
    return judge(case(len(left.answers), features), left, right, comparison)


def test_equal_answers_with_the_feature_engaged_are_exact():
    assert verdict_of(outcome("a", [GOOD]), outcome("b", [GOOD], {"turns": 3})) == ("exact", "")


@pytest.mark.parametrize("counters", [{}, {"turns": 0}, {"others": 9}])
def test_a_feature_that_never_happened_makes_equal_answers_vacuous(counters):
    verdict, reason = verdict_of(outcome("a", [GOOD]), outcome("b", [GOOD], counters))
    assert verdict == "vacuous"
    assert "turns=0" in reason


def test_the_feature_must_happen_in_the_right_arm():
    assert verdict_of(outcome("a", [GOOD], {"turns": 3}), outcome("b", [GOOD]))[0] == "vacuous"


def test_each_feature_of_several_must_happen():
    verdict, reason = verdict_of(outcome("a", [GOOD]), outcome("b", [GOOD], {"turns": 3}), ("turns", "late"))
    assert (verdict, reason) == ("vacuous", "the feature never engaged: late=0")


@pytest.mark.parametrize(("left", "right", "verdict"), [(3, 3, "exact"), (3, 2, "differs"), (0, 1, "differs")])
def test_counters_that_must_be_alike_are_compared(left, right, verdict):
    a, b = outcome("a", [GOOD], {"steps": left}), outcome("b", [GOOD], {"turns": 3, "steps": right})
    found = judge(replace(case(), alike=("steps",)), a, b, compare(a.answers, b.answers, ["chat-0"]))
    assert found == (verdict, "" if verdict == "exact" else f"steps is {left} and {right}")


def test_arms_with_equal_settings_in_force_prove_nothing():
    same = {"batch": "1"}
    verdict, reason = verdict_of(outcome("a", [GOOD], effective=same), outcome("b", [GOOD], {"turns": 3}, same))
    assert (verdict, reason) == ("vacuous", "both arms ran the same way")


@pytest.mark.parametrize(("in_force", "verdict"), [("f16", "vacuous"), ("int8", "exact")])
def test_a_setting_that_was_asked_for_and_is_not_in_force_proves_nothing(in_force, verdict):
    left, right = (
        replace(outcome(name, [GOOD], {"turns": 3}, {"way": name, "kv": in_force}), arm=Arm(name, EngineSettings(kv="int8"))) for name in "ab"
    )
    assert verdict_of(left, right) == (verdict, "" if verdict == "exact" else "kv=int8 was asked for, f16 is in force")


def test_nothing_compared_is_vacuous():
    assert verdict_of(outcome("a", [answer([])]), outcome("b", [answer([])], {"turns": 3})) == ("vacuous", "no token was compared")


def test_a_difference_counts_although_the_feature_never_happened():
    assert verdict_of(outcome("a", [GOOD]), outcome("b", [answer([5, 7])]))[0] == "differs"


def test_a_request_that_only_one_arm_fails_is_a_difference():
    failed = answer([5], finish="error", error="logits are not finite")
    assert verdict_of(outcome("a", [GOOD]), outcome("b", [failed], {"turns": 3}))[0] == "differs"


def test_a_request_that_both_arms_fail_alike_is_an_error_and_not_exact():
    failed = answer([5], finish="error", error="logits are not finite")
    verdict, reason = verdict_of(outcome("a", [failed]), outcome("b", [failed], {"turns": 3}))
    assert verdict == "error"
    assert "logits are not finite" in reason


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], "vacuous"),
        (["exact", "exact"], "exact"),
        (["exact", "vacuous"], "vacuous"),
        (["vacuous", "error", "exact"], "error"),
        (["error", "differs", "vacuous"], "differs"),
    ],
)
def test_the_worst_verdict_stands_for_all(verdicts, expected):
    assert worst(verdicts) == expected


@pytest.mark.parametrize(("verdict", "code"), [("exact", 0), ("differs", 1), ("vacuous", 2), ("error", 2)])
def test_verdicts_become_exit_codes(verdict, code):
    results = collect([suite()], [CaseResult("some", case(), verdict, "", 0.0)])
    assert exit_code(results) == code


def test_no_result_at_all_cannot_be_judged():
    assert exit_code([]) == 2


def test_results_are_put_under_their_suites_and_idle_suites_left_out():
    results = [CaseResult(name, case(), "exact", "", 0.0) for name in ("b", "a", "b")]
    collected = collect([suite("a"), suite("b"), suite("c")], results)
    assert [(result.suite.name, len(result.cases)) for result in collected] == [("a", 1), ("b", 2)]


def test_a_suite_sums_the_counters_of_its_cases_features():
    right = outcome("b", [GOOD], {"turns": 3, "unrelated": 5})
    one = CaseResult("some", case(), "exact", "", 0.0, outcome("a", [GOOD]), right, compare([GOOD], [GOOD], ["x"]))
    (result,) = collect([suite()], [one, one])
    assert (result.counters, result.n_rows, result.n_tokens) == ({"turns": 6}, 4, 4)


# ---- controls


def control_verdict(left, right):
    """The verdict and the reason for the two outcomes of a control."""
    comparison = compare(left.answers, right.answers, ["chat-0"] * len(left.answers))
    return judge(replace(case(len(left.answers)), is_control=True), left, right, comparison)


@pytest.mark.parametrize("other", [answer([5, 7]), answer([5, 6], ["d5", "other"])])
def test_a_control_must_differ_in_a_token_or_in_bits(other):
    verdict, reason = control_verdict(outcome("a", [GOOD]), outcome("b", [other], {"turns": 1}))
    assert (verdict, reason) == ("exact", "a control: 1 of 1 requests differ, as they must")


def test_a_control_that_is_equal_proves_nothing():
    verdict, reason = control_verdict(outcome("a", [GOOD]), outcome("b", [GOOD], {"turns": 1}))
    assert verdict == "vacuous" and "does not differ" in reason


def test_a_control_whose_feature_never_happened_proves_nothing_however_it_differs():
    assert control_verdict(outcome("a", [GOOD]), outcome("b", [answer([5, 7])]))[0] == "vacuous"


def test_an_error_is_no_difference_that_a_control_may_show():
    failed = answer([5], finish="error", error="position 3: broken")
    assert control_verdict(outcome("a", [GOOD]), outcome("b", [failed], {"turns": 1}))[0] == "error"
