"""Judging suites: run each case's two arms, compare, decide.

Settings and requests of all cases are checked before anything runs, so that a wrong option is one line at once.  Results
come one by one; the caller may stop in between.  Does not know: the command line, reports.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.comparison import compare
from harness.running import Runner
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from harness.verdicts import ERROR, CaseResult, judge
from strata.errors import StrataError, UsageError

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The cases that a run judges, with the suite of each."""

    cases: tuple[tuple[Suite, Case], ...]

    @property
    def suites(self) -> tuple[Suite, ...]:
        return tuple(dict.fromkeys(suite for suite, _ in self.cases))


def select(suites: Sequence[Suite], scope: Scope, case_name: str | None = None, every: bool = False) -> Selection:
    """Build the cases of the suites: those of the scope's level, those called `case_name`, or `every` one.

    Raises UsageError where there is none.
    """
    pairs: list[tuple[Suite, Case]] = []
    for suite in suites:
        cases = suite.cases(scope)
        if not cases:
            raise UsageError(f"suite={suite.name}", "it has no case with these options", "give it more devices, or leave it out with --suite")
        pairs += [(suite, case) for case in cases]
    of_level = scope.options.level > 1 or every
    chosen = tuple(pair for pair in pairs if (of_level or not pair[1].thorough if case_name is None else pair[1].name == case_name))
    if not chosen:
        known = ", ".join(dict.fromkeys(case.name for _, case in pairs))
        raise UsageError(f"case={case_name}", "no suite that was chosen has such a case", f"use one of {known}")
    return Selection(chosen)


def check(selection: Selection, runner: Runner) -> None:
    """Raise UsageError or RequestError for the first case that cannot run as asked."""
    for _, case in selection.cases:
        for arm in (case.left, case.right):
            runner.check(arm, case.workload)


def judge_all(selection: Selection, runner: Runner) -> Iterator[CaseResult]:
    """Judge the cases in order."""
    for suite, case in selection.cases:
        yield judge_case(suite, case, runner)


def judge_case(suite: Suite, case: Case, runner: Runner) -> CaseResult:
    """Run a case's arms and compare them; an arm that raises gives the verdict `error`."""
    started = time.perf_counter()
    try:
        left = runner.reference(case.left, case.workload)
        right = runner.run_or_kept(case.right, case.workload, left.answers)
    except StrataError as error:
        return CaseResult(suite.name, case, ERROR, str(error), time.perf_counter() - started)
    except Exception as error:
        LOG.exception("case %s of suite %s", case.name, suite.name)
        return CaseResult(suite.name, case, ERROR, f"{type(error).__name__}: {error}", time.perf_counter() - started)
    comparison = compare(left.answers, right.answers, [item.label for item in case.workload.items])
    verdict, reason = judge(case, left, right, comparison)
    return CaseResult(suite.name, case, verdict, reason, time.perf_counter() - started, left, right, comparison)
