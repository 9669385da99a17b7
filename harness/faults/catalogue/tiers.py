"""The expert tier: bytes that are read before they landed, rows of the table that are stale, places given away too early, experts
that are stored otherwise once they are hot, results added by where they were computed.

Only engines with a tier are hit; the arms without one stay as they are.  Does not know: checks.
"""

from collections.abc import Callable

import numpy as np

from harness.faults.catalogue.features import VACUOUS, setting
from harness.faults.catalogue.order import KIND as ORDER
from harness.faults.catalogue.order import sorter
from harness.faults.catalogue.rows import THRESHOLD
from harness.faults.catalogue.slots import REUSE, STALE
from harness.faults.catalogue.stages import COPIES
from harness.faults.fault import Fault
from harness.faults.hooks import add_probe, wrap
from strata.batch.engine import Engine
from strata.cpu_pool.arena import PARTS
from strata.experts.residency import ABSENT
from strata.split.tiers import DeviceTier

REPACKED = "repacked hot experts"
HELD = ("tier/cache-half", "tier/cache-all", "pcie/share-0.55")
MOVING = ("tier/no-bar", "tier/blocking", "tier/warmed", "tier/high-bar")
STEPPING = ("ram/resident-async", "tier/async", "ram/resident-async-slots-3")
FETCHING = ("pcie/share-0.55", "pcie/share-1.0", "pcie/slots-4")


def faults() -> list[Fault]:
    """Return the faults."""
    return [*_copies(), *_stale(), *_reused(), *_repacked(), *_by_place(), *_jobs(), *_off()]


def _on_tiers(change: Callable[[Engine, DeviceTier], None]) -> Callable[[Engine], None]:
    def plant(engine: Engine) -> None:
        for tier in engine.tiers.devices:
            change(engine, tier)

    return plant


# ---- copy ordering


def _copies() -> list[Fault]:
    return [
        Fault("tier-late-copy", COPIES, "expert cache", "an expert is resident before its bytes have landed: they come with the next copy", MOVING, _on_tiers(_late)),
        Fault("tier-half-copied", COPIES, "expert cache", "a swap copies gate and up; down is still the victim's", MOVING, _on_tiers(_half_copied)),
        Fault("tier-step-early", COPIES, "expert cache, rounds in steps", "a newcomer is resident a window before its copy begins", STEPPING, _stepping_early),
        Fault("tier-other-layer", COPIES, "expert cache", "a swap copies the expert of this number of the first layer", MOVING, _on_tiers(_other_layer)),
    ]


def _late(engine: Engine, tier: DeviceTier) -> None:
    waiting: list[tuple[int, int, int]] = []

    def make(load: Callable) -> Callable:
        def loaded(layer: int, expert: int, slot: int) -> None:
            waiting.append((layer, expert, slot))
            if len(waiting) > 1:
                load(*waiting.pop(0))

        return loaded

    wrap(tier.memory, "load", make)


def _stepping_early(engine: Engine) -> None:
    """Copies made by the helper arrive one step after the newcomers were made resident."""
    rounds = engine.tiers.adaptation
    if rounds is None or not rounds._settings.adapt_async:
        return
    late: list[Callable] = []

    def make(land: Callable) -> Callable:
        def landed() -> None:
            rounds._copies.result()
            for finish in late:
                finish()
            late.clear()
            for move in rounds._moves:
                at = slice(move.slot * move.tier.memory.slot_bytes, (move.slot + 1) * move.tier.memory.slot_bytes)
                new = move.tier.memory.cache[at].copy()
                late.append(lambda move=move, at=at, new=new: move.tier.memory.cache.__setitem__(at, new))
                move.tier.memory.cache[at] = 0
            land()

        return landed

    wrap(rounds, "_land", make)


def _half_copied(engine: Engine, tier: DeviceTier) -> None:
    def make(load: Callable) -> Callable:
        def loaded(layer: int, expert: int, slot: int) -> None:
            at = slot * tier.memory.slot_bytes + sum(getattr(tier.layers[layer], part).expert_bytes for part in ("gate", "up"))
            down = tier.memory.cache[at : at + tier.layers[layer].down.expert_bytes]
            before = down.copy()
            load(layer, expert, slot)
            down[:] = before

        return loaded

    wrap(tier.memory, "load", make)


def _other_layer(engine: Engine, tier: DeviceTier) -> None:
    wrap(tier.memory, "load", lambda load: lambda layer, expert, slot: load(min(tier.layers), expert, slot))


# ---- stale address


def _stale() -> list[Fault]:
    return [
        Fault("tier-stale-row", STALE, "residency table", "the window after a swap is dispatched by the table before it", MOVING, _on_tiers(_old_table)),
        Fault("tier-victim-stays", STALE, "residency table", "an expert whose slot was given away is still looked up there", MOVING, _on_tiers(_victim_stays)),
        Fault("tier-copy-stale", STALE, "copies in RAM", "a victim gets the newcomer's place in RAM, and what lay there stays", ("ram/resident", "ram/resident-few"), _on_tiers(_copy_stays)),
        Fault("tier-slot-beside", STALE, "residency table", "the last expert of every plan is read from the slot beside its own", HELD, _on_tiers(_slot_beside)),
    ]


def _old_table(engine: Engine, tier: DeviceTier) -> None:
    table = tier.residency
    seen = {"now": table.slot_of.copy(), "version": int(table.version[0])}
    first = min(tier.layers)

    def make(plan: Callable) -> Callable:
        def planned(layer: int, ids: np.ndarray, is_prompt: bool):
            current = table.slot_of
            if layer == first:
                seen["used"], seen["now"] = seen["now"], current.copy()
            table.slot_of = seen["used"]
            try:
                return plan(layer, ids, is_prompt)
            finally:
                table.slot_of = current

        return planned

    wrap(tier, "plan", make)


def _victim_stays(engine: Engine, tier: DeviceTier) -> None:
    table = tier.residency

    def make(vacate: Callable) -> Callable:
        def vacated(layer: int, expert: int) -> int:
            slot = vacate(layer, expert)
            table.slot_of[layer, expert] = slot
            return slot

        return vacated

    wrap(table, "vacate", make)


def _copy_stays(engine: Engine, tier: DeviceTier) -> None:
    def make(exchange: Callable) -> Callable:
        def exchanged(layer: int, leaves: int, comes: int, blobs: dict[str, np.ndarray]) -> bool:
            return exchange(layer, leaves, comes, {part: tier.arena.expert(layer, part, leaves).copy() for part in PARTS})

        return exchanged

    wrap(tier.arena, "exchange", make)


def _slot_beside(engine: Engine, tier: DeviceTier) -> None:
    gates = [tier.memory.cached(layer)[0] for layer in tier.layers]

    def change(parts) -> None:
        for part in parts:
            if part.gate in gates:
                part.places[-1] = (part.places[-1] + 1) % tier.residency.n_slots

    _on_parts(tier, change)


def _on_parts(tier: DeviceTier, change: Callable) -> None:
    def make(plan: Callable) -> Callable:
        def planned(layer: int, ids: np.ndarray, is_prompt: bool):
            entries, entry_of, parts = plan(layer, ids, is_prompt)
            change(parts)
            return entries, entry_of, parts

        return planned

    wrap(tier, "plan", make)


# ---- slot reuse


def _reused() -> list[Fault]:
    return [
        Fault(
            f"tier-ring-of-{n}", REUSE, f"staging ring, {n} places", "a place of the staging ring is filled again before it was read", FETCHING,
            _on_tiers(lambda engine, tier, n=n: _small_ring(tier, n)),
        )
        for n in (1, 2)
    ] + [Fault("tier-shared-slot", REUSE, "expert cache", "two experts that come in one round get one slot", MOVING, _on_tiers(_shared_slot))]


def _small_ring(tier: DeviceTier, n: int) -> None:
    gates = [tier.memory.staged(layer)[0] for layer in tier.layers]

    def staging(stage: Callable) -> Callable:
        def staged(layer: int, experts: np.ndarray) -> None:
            for place in range(min(n, len(experts))):
                tier.memory._copy(layer, int(experts[place::n][-1]), tier.memory.ring, place)

        return staged

    def change(parts) -> None:
        for part in parts:
            if part.gate in gates:
                part.places[:] %= n

    wrap(tier.memory, "stage", staging)
    _on_parts(tier, change)


def _shared_slot(engine: Engine, tier: DeviceTier) -> None:
    latest: dict[int, int] = {}

    def make(load: Callable) -> Callable:
        def loaded(layer: int, expert: int, slot: int) -> None:
            load(layer, expert, latest.setdefault(layer, slot))
            latest[layer] = slot

        return loaded

    wrap(tier.memory, "load", make)


# ---- repacked hot experts


def _repacked() -> list[Fault]:
    return [
        Fault(
            f"tier-repacked-{part}", REPACKED, f"expert cache, {part}", f"an expert in the cache has one bit of its {part} matrix stored otherwise", HELD,
            _on_tiers(lambda engine, tier, part=part: _store_otherwise(tier, part)),
        )
        for part in PARTS
    ]


def _store_otherwise(tier: DeviceTier, part: str) -> None:
    """Flip a bit in the middle of the part, in what lies in the cache and in what will."""

    def flip(layer: int, slot: int) -> None:
        placed, at = tier.layers[layer], slot * tier.memory.slot_bytes
        for name in PARTS[: PARTS.index(part)]:
            at += getattr(placed, name).expert_bytes
        tier.memory.cache[at + getattr(placed, part).expert_bytes // 2] ^= 0x40

    for slot, (layer, _) in enumerate(tier.residency.held.tolist()):
        if layer != ABSENT:
            flip(layer, slot)
    wrap(tier.memory, "load", lambda load: lambda layer, expert, slot: (load(layer, expert, slot), flip(layer, slot)))


# ---- arrival order


def _by_place() -> list[Fault]:
    def plant(engine: Engine) -> None:
        tiers = [tier for tier in engine.tiers.devices if 5 in tier.layers]
        if tiers:
            slot_of = tiers[0].residency.slot_of
            add_probe(engine, sorter(5, lambda ids: np.argsort(slot_of[5][ids] == ABSENT, axis=1, kind="stable")))

    words = "experts of the cache are added first, those of the pool behind them"
    return [Fault("tier-rank-order", ORDER, "combination of experts by place, layer 5", words, HELD, plant)]


# ---- jobs of several rows, and what nobody can see


def _jobs() -> list[Fault]:
    counted = (
        "Usage chooses which experts lie where, and where an expert lies changes no bit in canonical mode; in mode device both arms of "
        "a case that holds stand still, so that nothing is chosen. Only speed could tell, and no check measures it."
    )
    return [
        Fault("tier-job-first-row", THRESHOLD, "jobs of the pool", "a job of several rows computes the first of them for all", ("tier/slots-4", "tier/cache-1"), _on_tiers(_first_row)),
        Fault("tier-usage-twice", VACUOUS, "usage", "routed entries are counted twice", MOVING, _counting(2), survives=counted),
        Fault("tier-usage-none", VACUOUS, "usage", "routed entries are not counted: rounds choose nothing", MOVING, _counting(0)),
    ]


def _first_row(engine: Engine, tier: DeviceTier) -> None:
    def make(plan: Callable) -> Callable:
        def planned(layer: int, ids: np.ndarray, is_prompt: bool):
            entries, entry_of, parts = plan(layer, ids, is_prompt)
            for part in parts:
                for i in range(part.first, part.last) if part.in_pool else ():
                    entries.rows[entries.starts[i] : entries.starts[i + 1]] = entries.rows[entries.starts[i]]
            return entries, entry_of, parts

        return planned

    wrap(tier, "plan", make)


def _counting(times: int) -> Callable[[Engine], None]:
    def plant(engine: Engine) -> None:
        if engine.tiers.adaptation is not None:
            for item in engine.tiers.adaptation._usages:
                wrap(item, "take", lambda take, item=item: _taking(take, item, times))

    return plant


def _taking(take: Callable, item, times: int) -> Callable:
    def taken() -> None:
        before = item.usage.copy()
        take()
        item.usage[:] = before + times * (item.usage - before)

    return taken


# ---- vacuous


def _off() -> list[Fault]:
    return [
        setting("off-cache", VACUOUS, "every expert is resident although a cache was asked for", HELD, expert_cache=None),
        setting("off-rounds", VACUOUS, "no round is ever held", MOVING, adapt_every=0),
        setting("off-share", VACUOUS, "nothing goes over PCIe", FETCHING, pcie_frac=0.0),
    ]
