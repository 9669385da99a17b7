"""How experts lie in RAM: in the mapped file, in locked copies of all or of the hottest, or in a full copy, changes no bit.

What no device holds is computed by the CPU pool from there; rounds of swaps give a victim the newcomer's copy, and rounds in
steps copy beside windows.  `ram_blobs` and `file_blobs` count the experts that the pool read from copies and from the file.
"""

from harness.arms import Arm
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from harness.suites.split import even_split, may_split, split_settings
from harness.suites.tier import COMPANY, FIXED, GONE, MOVED, OFTEN, can_run, half_of, has_device_mode, n_pairs
from harness.workload import Workload

ITEMS, SLOTS = 3, 3
COPIES, FILE = "ram_blobs", "file_blobs"
BUDGET_SHARE = 0.3
"""Of the bytes of all experts: less than what half a cache leaves to RAM."""
GIB = 1 << 30
STEPS = {"adapt_async": True}


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases; none where cards are asked for another mode than theirs."""
    if not can_run(scope):
        return ()
    work, slots = scope.workload(ITEMS), scope.options.batch or SLOTS
    many, moving = scope.workload(slots + 1), {"expert_cache": half_of(scope), **OFTEN}
    few = {"resident_experts": True, "resident_budget_gib": _budget(scope)}
    return (
        _case(scope, "mapped", work, (FILE, MOVED, GONE), mmap_experts=True, **moving),
        _case(scope, "resident", work, (COPIES, MOVED, GONE), resident_experts=True, **moving),
        _case(scope, "resident-few", work, (COPIES, FILE, MOVED, GONE), **few, **moving),
        _case(scope, "resident-async", work, (COPIES, MOVED, GONE), resident_experts=True, **STEPS, **moving),
        _case(scope, f"resident-async-slots-{slots}", many, (COPIES, MOVED, GONE, COMPANY), resident_experts=True, batch=slots, **STEPS, **moving),
        _case(scope, "resident-few-async-mtp", work, (COPIES, FILE, MOVED, "rolled_back_windows"), mtp=True, spec_policy="full", **few, **STEPS, **moving),
        _case(scope, "resident-pcie", work, (COPIES, "pcie_entries", GONE), resident_experts=True, **{**moving, "pcie_frac": 0.55}),
        _case(scope, "pinned", work, (COPIES, MOVED, GONE), arena_pin_gib=0.0, **STEPS, **moving),
        _case(scope, "pinned-part", work, (COPIES, MOVED, GONE), arena_pin_gib=_budget(scope), **moving),
        *([_split(scope, work)] if may_split(scope) else []),
        *([_device_mode(scope, work)] if has_device_mode(scope) else []),
    )


def _budget(scope: Scope) -> float:
    """Return the GiB of copies that hold some experts and not all that no device holds."""
    experts = n_pairs(scope) * 3 * scope.config.hidden * scope.config.expert_ff
    return BUDGET_SHARE * experts / 2 / GIB  # about four bits a weight


def _split(scope: Scope, work: Workload) -> Case:
    """Two devices, each with a cache of its own, one arena that leaves out what either holds."""
    settings = split_settings(
        scope, even_split(scope.config.n_layers, 2), None, expert_cache=half_of(scope) // 2, resident_experts=True, **STEPS, **OFTEN
    )
    return Case("stages", work, Arm("resident", scope.settings(expert_cache=None), alone=True), Arm("stages", settings), (COPIES, MOVED, GONE, "hand_offs"))


def _device_mode(scope: Scope, work: Workload) -> Case:
    """The same cache, so the same experts in the pool: wherever it reads them."""
    fixed = {"expert_cache": half_of(scope), **FIXED}
    left, right = scope.settings(**fixed), scope.settings(**fixed, resident_experts=True)
    return Case("device-fixed-resident", work, Arm("mapped", left, alone=True), Arm("resident", right), (COPIES,))


def _case(scope: Scope, name: str, work: Workload, features: tuple[str, ...], **changes) -> Case:
    return Case(name, work, Arm("all-held", scope.settings(expert_cache=None), alone=True), Arm(name, scope.settings(**changes)), features)


SUITE = Suite("ram", "experts in the mapped file, in copies of some or of all, against all held by the device", cases)
