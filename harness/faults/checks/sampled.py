"""Checks with requests that draw their tokens, and with one that fails: alone against in company.

sampled   one in three requests is greedy, the others draw with seeds, temperatures, top-p and penalties of their own;
          in slots, late, in verify windows (drafts are made from the drawn answers)
ties      the same where every logit is rounded to a whole number, so that many are equal, at the top and at the borders
contained one request's sampler raises at its first row (a penalty takes its logits out of range); the others, in its
          company, must answer as they do alone, and it must end with that error

Does not know: faults.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.arms import Arm, Schedule
from harness.comparison import compare
from harness.drafts import DraftScript
from harness.faults.checks.cases import finding_of
from harness.faults.checks.contract import CLEAN, COMPARISON, ERROR, VACUOUS, Check, Finding
from harness.faults.checks.scopes import TINY
from harness.faults.fault import CONTROL, ONE, SOME, Fault
from harness.faults.hooks import on_logits
from harness.faults.planting import Bench, Scenario
from harness.judging import judge_case
from harness.suites.contract import Case, Suite
from harness.workload import Workload
from strata.batch.engine import Engine
from strata.batch.requests import Answer, Request
from strata.rows import Window
from strata.sampling.settings import Sampling

KEYS = (
    Sampling(),
    Sampling(temperature=0.9, seed=11),
    Sampling(temperature=1.2, top_p=0.8, seed=12, penalty_repeat=1.8),
    Sampling(),
    Sampling(temperature=1.5, top_k=40, min_p=0.02, seed=13, penalty_freq=2.5),
)
"""What the requests of a workload draw with, in turn."""
FAILING = Sampling(penalty_repeat=1e308)
FAILING_REQUEST = 1
N_ITEMS = 5
SUITE = Suite("sampled", "requests that draw their tokens, alone and in company", lambda scope: ())


def sampled_checks(bench: Bench) -> dict[str, Check]:
    """Return the checks by name."""
    scope = bench.scopes[TINY]
    work = scope.workload(N_ITEMS)
    draws = _keyed(work, [KEYS[i % len(KEYS)] for i in range(len(work.items))])
    solo = Arm("solo", scope.settings(), alone=True)
    late = Schedule(tuple(2 * i for i in range(len(work.items))))
    drafts = Arm("drafts", scope.settings(), drafts=DraftScript(4, "mixed"))
    cases = (
        Case("slots-5", work, solo, Arm("slots-5", scope.settings(batch=5)), ("windows_with_company",)),
        Case("late-2", work, solo, Arm("late-2", scope.settings(batch=2), schedule=late), ("late_admissions",)),
        Case("drafts", work, solo, drafts, ("drafts_accepted", "rows_rejected")),
        Case("drafts-4", work, solo, replace(drafts, settings=scope.settings(batch=4)), ("drafts_accepted", "rows_rejected", "windows_with_company")),
    )
    checks = [Check(f"sampled/{case.name}", True, _judged(case, draws)) for case in cases]
    ties = Case("slots-5", work, solo, Arm("slots-5", scope.settings(batch=5)), ())
    checks.append(Check("ties/slots-5", True, _tied(ties, draws)))
    fails = _keyed(work, [FAILING if i == FAILING_REQUEST else Sampling() for i in range(len(work.items))])
    for n in (2, 5):
        arm = Arm(f"slots-{n}", scope.settings(batch=n))
        checks.append(Check(f"contained/slots-{n}", True, _contained(Case(arm.name, work, solo, arm, ()), fails)))
    return {check.name: check for check in checks}


def _keyed(work: Workload, keys: Sequence[Sampling]) -> Scenario:
    """Give each request of a workload its sampling keys; requests are told apart by their prompts."""
    of_prompt = {item.prompt: chosen for item, chosen in zip(work.items, keys, strict=True)}

    def keyed(request: Request) -> Request:
        return replace(request, sampling=of_prompt[request.prompt])

    return keyed


def _judged(case: Case, scenario: Scenario):
    return lambda bench, fault: finding_of(judge_case(SUITE, case, bench.runner(fault, scenario)))


def _whole(window: Window, logits: np.ndarray) -> np.ndarray:
    return np.rint(logits)


def _tied(case: Case, scenario: Scenario):
    """Plant the rounding of logits in both arms, before the fault."""

    def run(bench: Bench, fault: Fault) -> Finding:
        def plant(engine: Engine) -> None:
            on_logits(engine, _whole)
            fault.plant(engine)

        tied = replace(fault, plant=plant, reach=SOME)
        alone = tied if fault.reach != ONE else replace(CONTROL, plant=lambda engine: on_logits(engine, _whole))
        try:
            left = bench.runner(alone, scenario).run(case.left, case.workload).answers
            right = bench.runner(tied, scenario).run(case.right, case.workload).answers
        except Exception as error:  # whatever a fault does is evidence
            return Finding(ERROR, f"{type(error).__name__}: {error}")
        if not any(e.row.margin == 0 for answer in left for e in answer.emitted):
            return Finding(VACUOUS, "no two best logits are equal")
        return _compared(left, right, case.workload)

    return run


def _contained(case: Case, scenario: Scenario):
    def run(bench: Bench, fault: Fault) -> Finding:
        runner = bench.runner(fault, scenario)
        try:
            left = runner.reference(case.left, case.workload).answers
            right = runner.run(case.right, case.workload).answers
        except Exception as error:  # whatever a fault does is evidence
            return Finding(ERROR, f"one request's error ends the run: {error}")
        if [i for i, answer in enumerate(left) if answer.error] != [FAILING_REQUEST]:
            return Finding(ERROR, f"alone, other requests than number {FAILING_REQUEST} fail")
        return _compared(left, right, case.workload)

    return run


def _compared(left: Sequence[Answer], right: Sequence[Answer], work: Workload) -> Finding:
    found = compare(left, right, [item.label for item in work.items]).differences
    return Finding(COMPARISON, f"{len(found)} of {len(left)} requests differ: {found[0].kind} of {found[0].label}") if found else CLEAN
