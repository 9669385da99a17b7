"""The PCIe share: whether a missed expert is fetched to the device or computed by the CPU pool changes no bit.

Shares given from none to all, and the one that the engine probes (a card's may be none), in slots and with drafts.  In mode `device` the share is a
placement like any other: with all misses fetched everything is computed by the device, as if all were resident; a share
left on (`control`) must differ from none.  A card fetches only what is page-locked: there the cases copy the experts into RAM.
"""

from harness.arms import Arm
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from harness.suites.tier import CACHED, COMPANY, FIXED, MISSED, can_run, half_of, has_device_mode, on_host
from harness.workload import Workload
from strata.experts.dispatch import RING_BLOBS

ITEMS, SLOTS = 3, 4
FETCHED = "pcie_entries"
SHARES = {0.0: (CACHED, MISSED), 0.2: (CACHED, FETCHED, MISSED), 0.55: (CACHED, FETCHED, MISSED), 1.0: (CACHED, FETCHED)}


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases; none where cards are asked for another mode than theirs."""
    if not can_run(scope):
        return ()
    work, slots = scope.workload(ITEMS), scope.options.batch or SLOTS
    many, quarter = scope.workload(slots + 1), max(1, half_of(scope) // 2)
    locked = {} if on_host(scope) else {"arena_pin_gib": 0.0}
    moving = {} if on_host(scope) else {"resident_experts": True}
    still = {"expert_cache": quarter, "adapt_every": 0, **locked}
    return (
        *(_case(scope, f"share-{share}", work, features, pcie_frac=share, **still) for share, features in SHARES.items()),
        _case(scope, "probed", work, (CACHED, FETCHED, MISSED) if on_host(scope) else (CACHED,), **still),
        _case(scope, f"slots-{slots}", many, (CACHED, FETCHED, MISSED, COMPANY), batch=slots, pcie_frac=0.55, **still),
        _case(scope, "one-slot", work, (FETCHED, MISSED), pcie_frac=0.55, **{**still, "expert_cache": 1}),
        _case(scope, "moving", work, (CACHED, FETCHED, MISSED, "evictions"), pcie_frac=0.2, adapt_every=1, adapt_min_gain=0.5, expert_cache=quarter, **moving),
        _case(scope, "mtp", work, (CACHED, FETCHED, MISSED, "rolled_back_windows"), pcie_frac=0.55, mtp=True, spec_policy="full", **still),
        *(_device_mode(scope, work, quarter) if has_device_mode(scope) else []),
    )


def _device_mode(scope: Scope, work: Workload, quarter: int) -> list[Case]:
    fixed = scope.settings(expert_cache=quarter, **FIXED)
    shared = scope.settings(expert_cache=quarter, **{**FIXED, "pcie_frac": 0.55})
    control = Case("control-device-share", work, Arm("fixed", fixed, alone=True), Arm("share", shared), (FETCHED, MISSED), is_control=True)
    if scope.config.n_experts > RING_BLOBS:
        return [control]  # a prompt's misses do not fit the ring, and some go to the pool
    resident, fetched = (scope.settings(rounding="device", **c) for c in ({"expert_cache": None}, {"expert_cache": quarter, "pcie_frac": 1.0}))
    all_there = Case("device-all-fetched", work, Arm("resident", resident, alone=True), Arm("fetched", fetched), (CACHED, FETCHED))
    return [all_there, control]


def _case(scope: Scope, name: str, work: Workload, features: tuple[str, ...], **changes) -> Case:
    return Case(name, work, Arm("resident", scope.settings(expert_cache=None), alone=True), Arm(name, scope.settings(**changes)), features)


SUITE = Suite("pcie", "missed experts fetched to the device, in every share, against all experts resident", cases)
