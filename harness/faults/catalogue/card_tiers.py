"""The expert tier of a card: tables that are stale, answers that come too early or land elsewhere, memory that is used again too soon.

Planted between the host and a card: in the tables that are sent before a window, in the meetings, in the cache's bytes.  They join
the catalogue where faults are planted on a card; on a host device there is nothing to plant them in.  Does not know: checks.
"""

import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from harness.faults.catalogue.features import VACUOUS
from harness.faults.catalogue.order import KIND as ORDER
from harness.faults.catalogue.requests import ERRORS
from harness.faults.catalogue.slots import REUSE, STALE
from harness.faults.catalogue.stages import COPIES
from harness.faults.catalogue.tiers import FETCHING, HELD, MOVING, REPACKED
from harness.faults.fault import Fault
from harness.faults.hooks import wrap
from strata.batch.engine import Engine
from strata.cpu_pool.arena import PARTS
from strata.errors import PoolJobError
from strata.experts.residency import ABSENT

MISSING = ("tier/cache-half", "pool/threads-1")
FAILING = ("pool/failing-job", "pool/failing-job-slots-4")
LATE_SECONDS = 0.002
"""Longer than a card takes from an answer to its use."""


def faults() -> list[Fault]:
    """Return the faults."""
    table, jobs = "a card's residency table", "answers to a card"
    return [
        Fault("card-tier-stale-table", STALE, table, "a window is dispatched by the table of the window before", MOVING, _on_tables(_of_before())),
        Fault("card-tier-slot-beside", STALE, table, "the last resident expert of each layer is read from the slot beside its own", HELD, _on_tables(_slot_beside)),
        Fault("card-tier-source-beside", STALE, "addresses of copies in RAM", "every expert is fetched where its neighbour lies", FETCHING, _on_tables(_source_beside)),
        Fault("card-tier-ring-stale", REUSE, "a card's staging ring", "places of the ring hold the layer's first expert still", FETCHING, _on_tables(_first_source)),
        Fault("card-tier-early-answer", COPIES, jobs, "the answer is published before the outputs are written", MISSING, _on_meetings(_answer_early)),
        Fault("card-tier-former-outputs", REUSE, jobs, "a card finds the outputs of the meeting before", MISSING, _on_meetings(_former_outputs)),
        Fault("card-tier-turned-outputs", ORDER, jobs, "outputs land in the order in which jobs ended: the last first", MISSING, _on_meetings(_turned)),
        Fault("card-tier-failure-unseen", ERRORS, jobs, "a job's failure is not noticed: its rows are zeros", FAILING, _on_meetings(_swallow)),
        Fault("card-tier-uncounted", VACUOUS, "counts of a card's routing", "what a card routes is not counted: rounds choose nothing", MOVING, _on_meetings(_uncounted)),
        *(
            Fault(f"card-tier-repacked-{part}", REPACKED, f"a card's cache, {part}", f"an expert in the cache has one bit of its {part} stored otherwise", HELD, _repacked(part))
            for part in PARTS
        ),
    ]


def _on_meetings(change: Callable) -> Callable[[Engine], None]:
    """Plant `change(meetings)` in every stage of a card that meets the pool."""

    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            meetings = getattr(stage.executor, "meetings", None)
            if meetings is not None:
                change(meetings)

    return plant


# ---- tables


def _on_tables(change: Callable) -> Callable[[Engine], None]:
    """Have `change(key, slot_of, sources, n_slots)` give the tables that are sent before each window; `key` is the stage's own."""

    def plant(meetings) -> None:
        sent = {"version": -1}  # no version of a table is below it

        def make(begin: Callable) -> Callable:
            def begun() -> None:
                tier = meetings.tier
                slot_of, sources = change(id(meetings), tier.residency.slot_of.copy(), tier.sources.copy(), tier.residency.n_slots)
                sent["version"] -= 1
                table = SimpleNamespace(slot_of=slot_of, version=np.array([sent["version"]]))
                meetings.tier = SimpleNamespace(residency=table, sources=sources, sources_version=sent["version"], share=tier.share)
                try:
                    begin()
                finally:
                    meetings.tier = tier

            return begun

        wrap(meetings, "begin", make)

    return _on_meetings(plant)


def _of_before() -> Callable:
    seen: dict[int, np.ndarray] = {}

    def change(key: int, slot_of: np.ndarray, sources: np.ndarray, n_slots: int):
        before, seen[key] = seen.get(key, slot_of), slot_of
        return before, sources

    return change


def _slot_beside(key: int, slot_of: np.ndarray, sources: np.ndarray, n_slots: int):
    for slots in slot_of:
        held = np.flatnonzero(slots != ABSENT)
        if len(held):
            slots[held[-1]] = (slots[held[-1]] + 1) % n_slots
    return slot_of, sources


def _source_beside(key: int, slot_of: np.ndarray, sources: np.ndarray, n_slots: int):
    for addresses in sources:
        there = np.flatnonzero(addresses[:, 0])
        addresses[there] = addresses[np.roll(there, 1)]
    return slot_of, sources


def _first_source(key: int, slot_of: np.ndarray, sources: np.ndarray, n_slots: int):
    for addresses in sources:
        there = np.flatnonzero(addresses[:, 0])
        addresses[there] = addresses[there[:1]]
    return slot_of, sources


# ---- meetings


def _answered(meetings, place: int) -> None:
    from strata.cuda.tier.meeting import answer

    answer(meetings.mailbox.done.host, place, meetings.step)


def _answer_early(meetings) -> None:
    def make(compute: Callable) -> Callable:
        def computed(place: int, is_prompt: bool) -> None:
            _answered(meetings, place)
            time.sleep(LATE_SECONDS)
            compute(place, is_prompt)

        return computed

    wrap(meetings, "_compute", make)


def _former_outputs(meetings) -> None:
    kept = [np.zeros((0, meetings.config.hidden), np.float32)]

    def former(compute: Callable, out: np.ndarray, *given) -> None:
        compute(*given)
        kept.append(out.copy())
        before = kept.pop(0)
        out[:] = 0
        out[: len(before)] = before[: len(out)]

    _on_jobs(meetings, former)


def _turned(meetings) -> None:
    def turned(compute: Callable, out: np.ndarray, *given) -> None:
        compute(*given)
        out[:] = out[::-1].copy()

    _on_jobs(meetings, turned)


def _swallow(meetings) -> None:
    def swallowed(compute: Callable, out: np.ndarray, *given) -> None:
        try:
            compute(*given)
        except PoolJobError:
            out[:] = 0

    _on_jobs(meetings, swallowed)


def _on_jobs(meetings, change: Callable) -> None:
    """Have `change(compute, out, *arguments)` compute the jobs of every meeting, whatever computes them at the time."""

    def make(meet: Callable) -> Callable:
        def met(place: int, is_prompt: bool) -> None:
            tier = meetings.tier

            def computed(layer, experts, starts, rows, values, out, prompt) -> None:
                change(tier.jobs.compute, out, layer, experts, starts, rows, values, out, prompt)

            meetings.tier = SimpleNamespace(jobs=SimpleNamespace(compute=computed), pool=tier.pool, prompt_pool=tier.prompt_pool)
            try:
                meet(place, is_prompt)
            finally:
                meetings.tier = tier

        return met

    wrap(meetings, "_compute", make)


def _uncounted(meetings) -> None:
    wrap(meetings, "end", lambda end: lambda window, routed: end(window, None))


# ---- bytes of the cache


def _repacked(part: str) -> Callable[[Engine], None]:
    """Flip a bit in the middle of a part, in what lies in the cache and in what will."""

    def flip(tier, layer: int, slot: int) -> None:
        placed, at = tier.layers[layer], slot * tier.memory.slot_bytes
        at += sum(getattr(placed, name).expert_bytes for name in PARTS[: PARTS.index(part)]) + getattr(placed, part).expert_bytes // 2
        one = tier.memory.buffer[at : at + 1]
        one.copy_to_device(one.copy_to_host() ^ np.uint8(0x40))

    def plant(engine: Engine) -> None:
        for tier in engine.tiers.devices:
            if not hasattr(tier.memory, "buffer"):
                continue
            for slot, (layer, _) in enumerate(tier.residency.held.tolist()):
                if layer != ABSENT:
                    flip(tier, layer, slot)
            wrap(tier.memory, "load", lambda load, tier=tier: lambda layer, expert, slot: (load(layer, expert, slot), flip(tier, layer, slot)))

    return plant
