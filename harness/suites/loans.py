"""Prompt loans: whether a prompt's buffers lie in cache slots or beside them changes no bit.

Devices with a budget that their cache fills, so that every chunk borrows the last slots and the experts there are filled in
again before the next window; prompts longer and shorter than a chunk, arrivals between windows, rounds blocking and in steps,
drafts, stages, groups.  Cards get budgets too (`cuda:0:SIZE`); two are needed for two devices.  In mode `device` the pool rounds
otherwise than a device, so that a prompt read with slots lent (`control`) must differ from one whose buffers are its own.
"""

import re
from dataclasses import replace
from functools import cache

from harness.arms import Arm, Schedule
from harness.scope import MODEL, Scope
from harness.suites.contract import Case, Suite, thorough
from harness.suites.split import even_split
from harness.suites.tier import COMPANY, FIXED, GONE, MOVED, OFF, OFTEN, can_run, half_of, has_device_mode, on_host
from harness.workload import Workload
from strata.batch.settings import EngineSettings, resolve
from strata.host.expert_memory import CACHE, RING
from strata.model.model import Model, load_model
from strata.split.budget import device_bytes
from strata.split.tier_sizes import BUFFERS, CARD_PAGE

ITEMS, SLOTS = 3, 4
LENT, REFILLED, BUFFERED = "lent_slots", "refilled_experts", "buffered_chunks"
LOANS = (LENT, REFILLED)
SMALL_CHUNK = 12
"""Rows: more than a window of eight, less than any prompt."""
TABLES = CARD_PAGE
"""Bytes that cover the tables of a card's tier, where they begin a page."""
FEW = 40
"""Slots that a prompt of level 1 borrows most of."""
STEPS = {"adapt_async": True, "resident_experts": True}


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases; none where stages or budgets are given, as those are the cases' own."""
    if not _names(scope) or scope.options.layer_split or not can_run(scope):
        return ()
    half, slots = half_of(scope), scope.options.batch or SLOTS
    work, many = scope.workload(ITEMS), scope.workload(slots + 1)
    fetched = {} if on_host(scope) else {"arena_pin_gib": 0.0}
    moving, small = {"expert_cache": half, **OFTEN}, scope.options.prefill or SMALL_CHUNK
    late = Schedule(tuple(3 * i for i in range(len(many.items))))
    found = (
        _case(scope, "shorter-than-chunk", work, LOANS, expert_cache=half, prefill=0, **OFF),
        _case(scope, "longer-than-chunk", work, (*LOANS, "chunked_prompts"), expert_cache=half, prefill=small, **OFF),
        _case(scope, "few-slots", work, LOANS, expert_cache=FEW, prefill=0, **OFF),
        _case(scope, "blocking", work, (*LOANS, MOVED, GONE), **moving),
        _case(scope, "async", work, (*LOANS, MOVED, GONE), **STEPS, **moving),
        _late(_case(scope, f"late-{slots}", many, (*LOANS, MOVED, GONE, COMPANY, "late_admissions"), batch=slots, prefill=small, **moving), late),
        _late(_case(scope, f"late-async-{slots}", many, (*LOANS, MOVED, GONE, COMPANY, "late_admissions"), batch=slots, **STEPS, **moving), late),
        _case(scope, "mtp", work, (*LOANS, MOVED, "rolled_back_windows"), mtp=True, spec_policy="full", prefill=small, **moving),
        _case(scope, "pcie", work, (*LOANS, "prompt_pcie_entries"), expert_cache=half, **{**OFF, "pcie_frac": 0.55}, **fetched),
        _case(scope, "own", work, (BUFFERED, MOVED), is_tight=False, prefill_borrow=False, prefill=small, **moving),
        *(_stages(scope, work, many, late, half, small) if on_host(scope) or len(_names(scope)) > 1 else []),
        *(_device_mode(scope, many, half, slots) if has_device_mode(scope) else []),
    )
    return thorough(found, "few-slots", "late-async-*", "pcie", "own", "stages-async", "stages-own", "one-device")


def _names(scope: Scope) -> tuple[str, ...]:
    """Return the devices that get budgets: the host as often as is needed, or the cards given; none where others are given."""
    given = tuple((scope.options.devices or "host").split(","))
    return given if given == ("host",) or all(re.fullmatch(r"cuda:\d+", name) for name in given) else ()


def _stages(scope: Scope, work: Workload, many: Workload, late: Schedule, half: int, small: int) -> list[Case]:
    """Two devices with a budget each."""
    split = {"layer_split": even_split(scope.config.n_layers, 2), "expert_cache": half // 2}
    crossing = (*LOANS, "hand_offs")
    return [
        _case(scope, "stages", work, (*crossing, MOVED, GONE), **split, **OFTEN),
        _late(_case(scope, "stages-async", many, (*crossing, MOVED, COMPANY), batch=SLOTS, prefill=small, **STEPS, **split, **OFTEN), late),
        _late(_case(scope, "groups", many, (*crossing, "overlaps"), batch=SLOTS, batch_groups=2, prefill=small, **split, **OFF), late),
        _case(scope, "stages-own", work, (BUFFERED, "hand_offs", MOVED), is_tight=False, split_own="1", prefill=small, **split, **OFTEN),
        _case(scope, "one-device", work, (*crossing, MOVED), split_device=(0,), **{**split, "expert_cache": half}, **OFTEN),
    ]


def _device_mode(scope: Scope, many: Workload, half: int, slots: int) -> list[Case]:
    """The same slots with buffers beside them, and lent to prompts."""
    own = _settings(scope, is_tight=False, expert_cache=half, **FIXED)
    slotted = _settings(scope, is_tight=False, expert_cache=half, batch=slots, prefill=SMALL_CHUNK, **FIXED)
    lent = _settings(scope, expert_cache=half, **{**FIXED, "prefill_borrow": True})
    left = Arm("own", own, alone=True)
    return [
        Case("device-fixed-own", many, left, Arm("slots", slotted), (BUFFERED, COMPANY, "chunked_prompts")),
        Case("control-device-lent", many, left, Arm("lent", lent), LOANS, is_control=True),
    ]


def _late(case: Case, schedule: Schedule) -> Case:
    return replace(case, right=replace(case.right, schedule=schedule))


def _case(scope: Scope, name: str, work: Workload, features: tuple[str, ...], is_tight: bool = True, **changes) -> Case:
    left = Arm("resident", scope.settings(expert_cache=None), alone=True)
    return Case(name, work, left, Arm(name, _settings(scope, is_tight, **changes)), features)


def _settings(scope: Scope, is_tight: bool = True, **changes) -> EngineSettings:
    """Return settings with a budget for each device: what the stages and the cache take, and room for prompt buffers unless it is tight."""
    asked = scope.settings(**changes)
    n_devices = 1 if asked.split_device is not None else len(asked.layer_split) + 1
    names = _names(scope)[:n_devices] if not on_host(scope) else ("host",) * n_devices
    open_ended = replace(asked, devices=",".join(names))
    budgets = _budgets(scope.options.model or str(MODEL), open_ended, is_tight)
    return replace(asked, devices=",".join(f"{name}:{n}" for name, n in zip(names, budgets, strict=True)))


@cache
def _budgets(path: str, settings: EngineSettings, is_tight: bool) -> tuple[int, ...]:
    """Return the bytes that each device of the settings takes, without prompt buffers where it is tight."""
    model = _model(path)
    devices = device_bytes(model, resolve(settings, model.config, 1))
    return tuple(_budget(dict(device.purposes), device.name.startswith("cuda"), is_tight) for device in devices)


def _budget(purposes: dict[str, int], is_card: bool, is_tight: bool) -> int:
    """Return what purposes add up to; a card gives a tier's memory by whole pages, and keeps tables of it."""
    buffers = 0 if is_tight else purposes[BUFFERS]
    if not is_card:
        return sum(purposes.values()) - purposes[BUFFERS] + buffers
    tier = purposes[CACHE] + purposes[RING]
    room = 0 if is_tight else _pages(buffers) + 2 * CARD_PAGE
    return sum(purposes.values()) - tier - purposes[BUFFERS] + _pages(tier) + TABLES + room


def _pages(n_bytes: int) -> int:
    return -(-n_bytes // CARD_PAGE) * CARD_PAGE


@cache
def _model(path: str) -> Model:
    return load_model(path)


SUITE = Suite("loans", "prompts whose buffers lie in lent cache slots, against all experts resident", cases)
