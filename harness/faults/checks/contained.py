"""Checks with a request that fails: its sampler raises at its first row, since a penalty takes its logits out of range.

The others, in its company, must answer as they do alone, and it must end with that error.  Does not know: faults.
"""

from dataclasses import replace

from harness.arms import Arm
from harness.comparison import compare
from harness.faults.checks.contract import Check
from harness.faults.scopes import TINY
from harness.faults.fault import Fault
from harness.faults.finding import CLEAN, COMPARISON, ERROR, Finding
from harness.faults.planting import Bench
from harness.suites.contract import Case
from harness.workload import Workload
from strata.sampling.settings import Sampling

FAILING = Sampling(penalty_repeat=1e308)
FAILING_REQUEST, N_ITEMS = 1, 5


def contained_checks(bench: Bench) -> dict[str, Check]:
    """Return the checks by name."""
    scope = bench.scopes[TINY]
    items = scope.workload(N_ITEMS).items
    work = Workload(tuple(replace(item, sampling=FAILING) if i == FAILING_REQUEST else item for i, item in enumerate(items)))
    solo = Arm("solo", scope.settings(), alone=True)
    arms = [Arm(f"slots-{n}", scope.settings(batch=n)) for n in (2, 5)]
    return {f"contained/{arm.name}": Check(f"contained/{arm.name}", True, _contained(Case(arm.name, work, solo, arm, ()))) for arm in arms}


def _contained(case: Case):
    def run(bench: Bench, fault: Fault) -> Finding:
        runner = bench.runner(fault)
        try:
            left = runner.reference(case.left, case.workload).answers
            right = runner.run(case.right, case.workload).answers
        except Exception as error:  # whatever a fault does is evidence
            return Finding(ERROR, f"one request's error ends the run: {error}")
        if [i for i, answer in enumerate(left) if answer.error] != [FAILING_REQUEST]:
            return Finding(ERROR, f"alone, other requests than number {FAILING_REQUEST} fail")
        found = compare(left, right, [item.label for item in case.workload.items]).differences
        return Finding(COMPARISON, f"{len(found)} of {len(left)} requests differ: {found[0].kind} of {found[0].label}") if found else CLEAN

    return run
