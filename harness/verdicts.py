"""Verdicts: what a case, a suite and a run prove.

    exact     every token and every logit row is equal, and the feature under test happened
    differs   something is not equal: an answer, or a counter that must be
    vacuous   all is equal, but the feature never engaged, both arms ran the same way, or a setting was ignored: nothing is proven
    error     an arm could not run to its end

A control (`Case.is_control`) is exact where its arms differ, and vacuous where they do not.
Exit codes: 0 all exact, 1 something differs, 2 could not judge.  Does not know: how arms run.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.arms import SettingDifference, difference
from harness.comparison import Comparison
from harness.running import Outcome
from harness.suites.contract import Case, Suite

EXACT, DIFFERS, VACUOUS, ERROR = "exact", "differs", "vacuous", "error"
WORST_FIRST = (DIFFERS, ERROR, VACUOUS, EXACT)
TAKEN_AS_ASKED = ("rounding", "kv", "prefill", "context", "threads")
"""Settings that are in force as they were asked for, where they were; others may be resolved otherwise, with a note."""
EXIT_CODES = {EXACT: 0, DIFFERS: 1, VACUOUS: 2, ERROR: 2}


def worst(verdicts: Iterable[str]) -> str:
    """Return the verdict that stands for all of them; none at all is vacuous."""
    return min(verdicts, key=WORST_FIRST.index, default=VACUOUS)


@dataclass(frozen=True, slots=True, eq=False)
class CaseResult:
    """What a case gave: outcomes and comparison are None where an arm raised `error`."""

    suite: str
    case: Case
    verdict: str
    reason: str
    seconds: float
    left: Outcome | None = None
    right: Outcome | None = None
    comparison: Comparison | None = None

    @property
    def counters(self) -> dict[str, int]:
        """The engagement counters of the case: those of its features, from the right arm."""
        return {name: self.right.counters.get(name, 0) if self.right else 0 for name in self.case.features}

    @property
    def in_force(self) -> tuple[SettingDifference, ...]:
        """The settings in force in which the arms differ."""
        return difference(self.left.effective, self.right.effective) if self.left and self.right else ()


@dataclass(frozen=True, slots=True, eq=False)
class SuiteResult:
    """The results of a suite's cases, in order."""

    suite: Suite
    cases: tuple[CaseResult, ...]

    @property
    def verdict(self) -> str:
        return worst(case.verdict for case in self.cases)

    @property
    def n_tokens(self) -> int:
        return sum(case.comparison.n_tokens for case in self.cases if case.comparison)

    @property
    def n_rows(self) -> int:
        return sum(case.comparison.n_rows for case in self.cases if case.comparison)

    @property
    def seconds(self) -> float:
        return sum(case.seconds for case in self.cases)

    @property
    def counters(self) -> dict[str, int]:
        """Engagement counters summed over the cases that need them."""
        total: Counter = Counter()
        for case in self.cases:
            total.update(case.counters)
        return dict(total)


def exit_code(results: Iterable[SuiteResult]) -> int:
    """Return the exit code of a run."""
    return EXIT_CODES[worst(result.verdict for result in results)]


def judge(case: Case, left: Outcome, right: Outcome, comparison: Comparison) -> tuple[str, str]:
    """Return (verdict, its reason in one line)."""
    if case.is_control:
        return _judge_control(case, left, right, comparison)
    if comparison.differences:
        return DIFFERS, f"{len(comparison.differences)} of {len(left.answers)} requests differ"
    unlike = [name for name in case.alike if left.counters.get(name, 0) != right.counters.get(name, 0)]
    if unlike:
        return DIFFERS, "; ".join(f"{name} is {left.counters.get(name, 0)} and {right.counters.get(name, 0)}" for name in unlike)
    failed = tuple(number for number, answer in enumerate(left.answers) if answer.error)
    if failed != case.failing:
        return ERROR, f"both arms end a request with an error: {left.errors[0]}" if left.errors else f"requests {case.failing} end without an error"
    if comparison.n_rows == 0:
        return VACUOUS, "no token was compared"
    idle = [name for name in case.features if not right.counters.get(name, 0)]
    if idle:
        return VACUOUS, f"the feature never engaged: {', '.join(f'{name}=0' for name in idle)}"
    if not difference(left.effective, right.effective):
        return VACUOUS, "both arms ran the same way"
    ignored = [text for outcome in (left, right) for text in ignored_settings(outcome)]
    if ignored:
        return VACUOUS, ignored[0]
    return EXACT, ""


def _judge_control(case: Case, left: Outcome, right: Outcome, comparison: Comparison) -> tuple[str, str]:
    """Return the verdict of a case whose arms must differ in a token or in bits, both having run to their end."""
    errors = (*left.errors, *right.errors)
    if errors:
        return ERROR, f"an arm of the control ends a request with an error: {errors[0]}"
    idle = [name for name in case.features if not right.counters.get(name, 0)]
    if idle:
        return VACUOUS, f"the feature never engaged: {', '.join(f'{name}=0' for name in idle)}"
    if not comparison.differences:
        return VACUOUS, "the control does not differ: the harness would not see what the suite is about"
    return EXACT, f"a control: {len(comparison.differences)} of {len(left.answers)} requests differ, as they must"


def ignored_settings(outcome: Outcome) -> list[str]:
    """Return what an arm asked for by value and did not get, in words; the engine never changes these settings by itself."""
    asked = {name: getattr(outcome.arm.settings, name) for name in TAKEN_AS_ASKED if name in outcome.effective}
    ignored = {name: value for name, value in asked.items() if value and str(value) != outcome.effective[name]}
    return [f"{name}={value} was asked for, {outcome.effective[name]} is in force" for name, value in ignored.items()]


def collect(suites: Sequence[Suite], results: Sequence[CaseResult]) -> tuple[SuiteResult, ...]:
    """Put the results of cases under their suites; a suite none of whose cases ran is left out."""
    gathered = (SuiteResult(suite, tuple(r for r in results if r.suite == suite.name)) for suite in suites)
    return tuple(result for result in gathered if result.cases)
