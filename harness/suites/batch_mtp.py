"""One proposal per slot against each conversation alone: two rows a slot, four slots a window, more take turns.

Two to ten slots, late arrivals, early ends, a least probability, half of the proposals wrong, sampled conversations beside
greedy ones, int8 cells, the draft layer on the last of two stages.  Cells behind the newest are poisoned throughout.
"""

from dataclasses import replace

from harness.arms import Arm, Schedule
from harness.scope import Scope
from harness.suites.batch import early
from harness.suites.contract import Case, Suite
from harness.suites.sampled import with_keys
from harness.suites.split import even_split, may_split, split_settings
from harness.workload import Workload
from strata.batch.draft_settings import SLOTS_PER_WINDOW

SLOTS = (2, 3, 4, 5, 10)
COMPANY, ROTATED = "windows_with_company", "rotated_windows"
PROPOSED = (COMPANY, "mtp_offered", "mtp_accepted", "rolled_back_windows")
PROPOSALS = {"mtp": True, "batch_mtp": True}


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases for 2 to 10 slots, or for the slots asked for."""
    asked = scope.options.batch
    few = asked or 4
    work = scope.workload(few + 1)
    late = Schedule(tuple(3 * i for i in range(len(work.items))))
    return (
        *(_case(scope, f"slots-{n}", scope.workload(n + 1), n) for n in ([asked] if asked else SLOTS)),
        replace_right(_case(scope, f"late-{few}", work, few, ("late_admissions",)), schedule=late),
        _case(scope, f"early-ends-{few}", early(work), few, ("early_ends",)),
        _case(scope, f"min-p-{few}", work, few, spec_min_p=0.5),
        _case(scope, f"wrong-{few}", work, few, ("rows_rejected",), ("wrong-drafts",)),
        _case(scope, f"sampled-{few}", with_keys(work, scope.options.seed), few),
        _case(scope, f"int8-{few}", work, few, kv=scope.options.kv or "int8"),
        *([_over_stages(scope, work, few)] if may_split(scope) else []),
    )


def _case(scope: Scope, name: str, work: Workload, slots: int, features: tuple[str, ...] = (), stresses: tuple[str, ...] = (), **changes) -> Case:
    shared = {name: value for name, value in changes.items() if name == "kv"}
    rotated = (ROTATED,) if slots > SLOTS_PER_WINDOW and len(work.items) > SLOTS_PER_WINDOW else ()
    arm = Arm(name, scope.settings(batch=slots, batch_groups=1, **PROPOSALS, **changes), stresses=(*stresses, "poison"))
    return Case(name, work, Arm("solo", scope.settings(**shared), alone=True), arm, (*PROPOSED, *rotated, *features))


def replace_right(case: Case, **changes) -> Case:
    """Return the case with changes in its right arm."""
    return replace(case, right=replace(case.right, **changes))


def _over_stages(scope: Scope, work: Workload, slots: int) -> Case:
    settings = split_settings(scope, even_split(scope.config.n_layers, 2), None, batch=slots, batch_groups=1, **PROPOSALS)
    return replace_right(_case(scope, f"stages-{slots}", work, slots, ("hand_offs",)), settings=settings)


SUITE = Suite("batch-mtp", "one proposal per slot against each conversation alone", cases)
