"""The expert tier against every expert resident: which experts a device holds, and when they change places, changes no bit.

Caches of 1 slot, of one less than a row needs, of half and of all experts; empty at the start, filled by a profile, warmed by
the requests before; rounds off, blocking, in steps, with and without a bar; beside drafts, slots, chunks and stages.

In mode `device` the same holds only while nothing moves: the cases `fixed` have the switches that the mode needs, and each
`control` leaves one of them out and must differ.  Cards compute the canonical mode only: there the cases of other modes are left out.
"""

from harness.arms import Arm
from harness.scope import Scope
from harness.suites.contract import Case, Suite, thorough
from harness.suites.split import even_split, split_settings
from harness.workload import Workload
from strata.batch.settings import EngineSettings

ITEMS, SLOTS = 3, 4
CACHED, MISSED, MOVED, GONE = "vram_entries", "cpu_entries", "adapt_swaps", "evictions"
SERVED, MOVING = (CACHED, MISSED), (CACHED, MISSED, MOVED, GONE)
COMPANY = "windows_with_company"
POOL = {"pcie_frac": 0.0}
OFF = {**POOL, "adapt_every": 0}
OFTEN = {**POOL, "adapt_every": 1, "adapt_min_gain": 0.5}
FIXED = {**POOL, "adapt_every": 1_000_000, "rounding": "device", "prefill_borrow": False}

THOROUGH = (
    "cache-auto", "cold-few", "warmed", "high-bar", "one-swap", "chunks-*", "one-device", "device-fixed-chunks-*", "grouped-alone", "wide-*",
)
"""Cases of level 2: kin of those of level 1, or kernels of a mode of their own to compile."""


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases; none where cards are asked for another mode than theirs."""
    if not can_run(scope):
        return ()
    work, half = scope.workload(ITEMS), half_of(scope)
    found = (
        *_sizes(scope, work),
        *_rounds(scope, work, half),
        *_company(scope, work, half),
        *([] if scope.options.layer_split else _stages(scope, work, half)),
        *(_device_mode(scope, work, half) if has_device_mode(scope) else []),
        *(_other_modes(scope, work, half) if has_device_mode(scope) and scope.options.rounding is None else []),
    )
    return thorough(found, f"cache-{_short(scope)}", *THOROUGH)


def on_host(scope: Scope) -> bool:
    """Whether all devices asked for are the CPU."""
    return all(name.strip().startswith("host") for name in (scope.options.devices or "host").split(","))


def can_run(scope: Scope) -> bool:
    """Whether the devices asked for compute the rounding mode asked for: cards only the canonical one."""
    return on_host(scope) or scope.options.rounding in (None, "canonical")


def has_device_mode(scope: Scope) -> bool:
    """Whether there are cases of mode `device`: it is not excluded, and no card would have to compute them."""
    return on_host(scope) and scope.options.rounding in (None, "device")


def n_pairs(scope: Scope) -> int:
    """Return the routed experts of all layers."""
    return scope.config.n_layers * scope.config.n_experts


def half_of(scope: Scope) -> int:
    """Return slots for half of the experts."""
    return n_pairs(scope) // 2


def tenth_of(scope: Scope) -> int:
    """Return slots for a tenth of the experts."""
    return n_pairs(scope) // 10


def _short(scope: Scope) -> int:
    """Return slots for one expert less than a row uses."""
    return max(1, scope.config.n_used - 1)


def _sizes(scope: Scope, work: Workload) -> list[Case]:
    short = _short(scope)
    return [
        _case(scope, "cache-1", work, (f"prompt_{CACHED}", MISSED), expert_cache=1, **OFF),
        _case(scope, f"cache-{short}", work, SERVED, expert_cache=short, **OFF),
        *([] if on_host(scope) else [_case(scope, "cache-tenth", work, SERVED, expert_cache=tenth_of(scope), **OFF)]),
        _case(scope, "cache-half", work, SERVED, expert_cache=half_of(scope), **OFF),
        _case(scope, "cache-all", work, (CACHED,), expert_cache=n_pairs(scope), **OFF),
        _case(scope, "cache-auto", work, (CACHED,), expert_cache=0, **OFF),
        _case(scope, "cache-1-moving", work, (MISSED, MOVED, GONE), expert_cache=1, **OFTEN),
    ]


def _rounds(scope: Scope, work: Workload, half: int) -> list[Case]:
    few = scope.config.n_layers * scope.config.n_used
    return [
        _case(scope, "cold", work, (*SERVED, MOVED), expert_cache=half, expert_profile="none", **OFTEN),
        _case(scope, "cold-few", work, MOVING, expert_cache=few, expert_profile="none", **OFTEN),
        _case(scope, "warmed", work, MOVING, expert_cache=half, **POOL),
        _case(scope, "blocking", work, MOVING, expert_cache=half, **OFTEN),
        _case(scope, "async", work, MOVING, expert_cache=half, adapt_async=True, resident_experts=True, **OFTEN),
        _case(scope, "no-bar", work, MOVING, expert_cache=half, **{**OFTEN, "adapt_min_gain": 0.0}),
        _case(scope, "high-bar", work, MOVING, expert_cache=half, **{**OFTEN, "adapt_min_gain": 3.0, "adapt_decay": 1.0}),
        _case(scope, "one-swap", work, MOVING, expert_cache=half, adapt_swaps=1, **OFTEN),
    ]


def _company(scope: Scope, work: Workload, half: int) -> list[Case]:
    slots, chunk = scope.options.batch or SLOTS, scope.options.prefill or 7
    many = scope.workload(slots + 1)
    mtp = {"mtp": True, "spec_policy": "full"}
    return [
        _case(scope, f"slots-{slots}", many, (*MOVING, COMPANY), batch=slots, expert_cache=half, **OFTEN),
        _case(scope, "mtp", work, (*MOVING, "rolled_back_windows"), expert_cache=half, **mtp, **OFTEN),
        _case(scope, f"batch-mtp-{slots}", many, (*MOVING, "mtp_accepted"), batch=slots, batch_mtp=True, expert_cache=half, **mtp, **OFTEN),
        _case(scope, f"chunks-{chunk}", work, (*MOVING, "chunked_prompts"), prefill=chunk, expert_cache=half, **OFTEN),
    ]


def _stages(scope: Scope, work: Workload, half: int) -> list[Case]:
    split = even_split(scope.config.n_layers, 2)
    found = []
    if scope.options.devices is None or "," in scope.options.devices:
        moving = split_settings(scope, split, None, expert_cache=half // 2, **OFTEN)
        groups = split_settings(scope, split, None, batch=4, batch_groups=2, expert_cache=half // 2, **OFTEN)
        found += [_over(scope, "stages", work, moving, (*MOVING, "hand_offs")), _over(scope, "groups", work, groups, (*SERVED, "overlaps"))]
    shared = split_settings(scope, split, (0,), expert_cache=half, **OFTEN)
    return [*found, _over(scope, "one-device", work, shared, (*MOVING, "hand_offs"))]


def _device_mode(scope: Scope, work: Workload, half: int) -> list[Case]:
    slots = scope.options.batch or SLOTS
    many, fixed = scope.workload(slots + 1), {"expert_cache": half, **FIXED}
    chunk = scope.options.prefill or 7

    def against(name: str, items: Workload, features: tuple[str, ...], is_control: bool = False, **changes) -> Case:
        left, right = (scope.settings(**{**fixed, **part}) for part in ({}, changes))
        return Case(name, items, Arm("fixed", left, alone=True), Arm(name, right), features, is_control=is_control)

    return [
        against(f"device-fixed-slots-{slots}", many, (*SERVED, COMPANY), batch=slots),
        against(f"device-fixed-chunks-{chunk}", work, (*SERVED, "chunked_prompts"), prefill=chunk),
        against("device-fixed-mtp", work, (*SERVED, "rolled_back_windows"), mtp=True, spec_policy="full"),
        against("control-device-adapts", work, MOVING, True, **{**OFTEN, "adapt_min_gain": 0.0}),
        against("control-device-other-cache", work, SERVED, True, expert_cache=max(1, half // 2)),
    ]


def _other_modes(scope: Scope, work: Workload, half: int) -> list[Case]:
    """In `grouped` and `wide` the place is free, and company counts in `grouped`."""
    slots = scope.options.batch or SLOTS
    many, tiered = scope.workload(slots + 1), {"expert_cache": half, **OFTEN}

    def against(mode: str, name: str, items: Workload, features: tuple[str, ...], is_control: bool = False, alone: bool = False, **changes) -> Case:
        left, right = scope.settings(rounding=mode, expert_cache=None), scope.settings(**{"rounding": mode, "expert_cache": None, **changes})
        return Case(name, items, Arm("resident", left, alone=True), Arm(name, right, alone), features, is_control=is_control)

    return [
        against("grouped", "grouped-alone", work, MOVING, alone=True, **tiered),
        against("grouped", f"control-grouped-slots-{slots}", many, (COMPANY,), True, batch=slots),
        against("wide", f"wide-slots-{slots}", many, (*MOVING, COMPANY), batch=slots, **tiered),
    ]


def _case(scope: Scope, name: str, work: Workload, features: tuple[str, ...], **changes) -> Case:
    return _over(scope, name, work, scope.settings(**changes), features)


def _over(scope: Scope, name: str, work: Workload, settings: EngineSettings, features: tuple[str, ...]) -> Case:
    return Case(name, work, Arm("resident", scope.settings(expert_cache=None), alone=True), Arm(name, settings), features)


SUITE = Suite("tier", "experts in caches of every size, moving or not, against all of them resident", cases)
