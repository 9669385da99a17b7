"""Checks that are cases of the suites, on the small workloads: `batch/slots-2`, `deep batch/slots-2`, `wide split/...`.

Does not know: faults.
"""

from harness.faults.checks.contract import Check
from harness.faults.scopes import DEEP, TINY, WIDE
from harness.faults.fault import Fault
from harness.faults.finding import CLEAN, COMPARISON, ERROR, VACUOUS, Finding
from harness.faults.planting import Bench
from harness.judging import judge_case
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from harness.suites.table import SUITES
from harness.verdicts import DIFFERS, EXACT, CaseResult
from harness.verdicts import ERROR as RAISED

EVIDENCE_OF = {DIFFERS: COMPARISON, RAISED: ERROR}
DEEP_CASES = (("batch", "slots-2"), ("split", "2-stages-6"), ("window", "width-4"), ("chunks", "size-32"))


def case_checks(bench: Bench) -> dict[str, Check]:
    """Return the checks by name."""
    found = {}
    for suite, case in _cases(bench.scopes[TINY]):
        found[f"{suite.name}/{case.name}"] = (suite, case)
    for suite, case in _cases(bench.scopes[DEEP]):
        if (suite.name, case.name) in DEEP_CASES:
            found[f"{DEEP} {suite.name}/{case.name}"] = (suite, case)
    return {name: Check(name, True, _runner(*pair)) for name, pair in found.items()}


def wide_check(bench: Bench, name: str) -> Check | None:
    """Return the same case on the workload of `strata-harness run`, None where there is none of that name."""
    for suite, case in _cases(bench.scopes[WIDE]):
        if name == f"{suite.name}/{case.name}":
            return Check(f"{WIDE} {name}", True, _runner(suite, case))
    return None


def _cases(scope: Scope) -> list[tuple[Suite, Case]]:
    return [(suite, case) for suite in SUITES.values() if suite.why_not() is None for case in suite.cases(scope)]


def _runner(suite: Suite, case: Case):
    def run(bench: Bench, fault: Fault) -> Finding:
        return finding_of(judge_case(suite, case, bench.runner(fault)))

    return run


def finding_of(result: CaseResult) -> Finding:
    """Return what a case's verdict says of a fault."""
    if result.verdict == EXACT:
        return CLEAN
    differences = result.comparison.differences if result.comparison else ()
    detail = f"{result.reason}: {differences[0].kind} of {differences[0].label}" if differences else result.reason
    return Finding(EVIDENCE_OF.get(result.verdict, VACUOUS), detail)
