"""Checks for faults that hit all arms alike: a golden record, and the float64 reference.

golden   tokens and hashes of logit rows against those that the engine without a fault gave in this very process; what
         `strata-harness check` does with records in files
oracle   logits, picks and drafts of the shipped model against the figures beside it, with the bounds of tests/reference

Does not know: faults.
"""

import numpy as np

from harness.arms import Arm
from harness.comparison import compare
from harness.faults.checks.contract import Check
from harness.faults.scopes import DEEP, TINY
from harness.faults.fault import Fault
from harness.faults.finding import CLEAN, ERROR, GOLDEN, ORACLE, Finding
from harness.faults.planting import Bench
from harness.scope import MODEL
from strata.batch.requests import Request
from strata.batch.settings import EngineSettings

N_ITEMS, N_FED = 3, 12
MEAN_ERROR, LARGEST_ERROR, SMALLEST_ERROR = 0.03, 0.08, 1e-4
DECISIVE_MARGIN = 0.15
NOT_ALONE = 3
"""Slots of the golden arm: windows with company, so that what only happens there is recorded too."""


def golden_checks() -> dict[str, Check]:
    """Return the checks by name."""
    checks = (Check("golden", False, _golden(TINY)), Check("golden deep", False, _golden(DEEP)), Check("oracle", False, _oracle))
    return {check.name: check for check in checks}


def _golden(scope_name: str):
    def run(bench: Bench, fault: Fault) -> Finding:
        scope = bench.scopes[scope_name]
        work = scope.workload(N_ITEMS)
        arm = Arm("recorded", scope.settings(batch=NOT_ALONE))
        recorded = bench.clean.reference(arm, work)
        try:
            seen = bench.runner(fault).run(arm, work)
        except Exception as error:  # whatever a fault does is evidence
            return Finding(ERROR, f"{type(error).__name__}: {error}")
        differences = compare(recorded.answers, seen.answers, [item.label for item in work.items]).differences
        return Finding(GOLDEN, f"{len(differences)} requests differ from the record") if differences else CLEAN

    return run


def _oracle(bench: Bench, fault: Fault) -> Finding:
    with np.load(MODEL / "reference-mix.npz") as stored:
        ids, logits, greedy, margin = (stored[f"p0_{name}"] for name in ("ids", "logits", "greedy", "margin"))
    prompt, fed = tuple(map(int, ids)), tuple(map(int, greedy[:N_FED]))
    arm = Arm("oracle", EngineSettings(context=96))
    try:
        with bench.runner(fault).open(arm) as engine:
            scored = engine.score(prompt)[-len(logits) :].astype(np.float64)
            answer = engine.generate([Request(prompt, N_FED, forced=fed)]).answers[0]
    except Exception as error:  # whatever a fault does is evidence
        return Finding(ERROR, f"{type(error).__name__}: {error}")
    errors = np.linalg.norm(scored - logits, axis=1) / np.linalg.norm(logits.astype(np.float64), axis=1)
    if not errors.mean() <= MEAN_ERROR or not errors.max() <= LARGEST_ERROR:
        return Finding(ORACLE, f"logits are off by {errors.mean():.3f}, {errors.max():.3f} at most")
    if errors.min() < SMALLEST_ERROR:
        return Finding(ORACLE, f"logits are too near ({errors.min():.1e}): activations are not coded")
    decisive = margin[:N_FED] > DECISIVE_MARGIN
    picks = np.array(answer.tokens, np.int64)
    if len(picks) != N_FED or (picks[decisive] != greedy[:N_FED][decisive]).any():
        return Finding(ORACLE, "a pick with a decisive margin is another token")
    return CLEAN
