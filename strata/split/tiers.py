"""Expert tiers: per device, which experts lie in its cache, and what of a window's layer is computed where.

`DeviceTier.plan` joins the dispatch of one layer with the memory that its parts read: cache slots, places of the staging
ring, and, for the CPU pool, the arena (`strata.cpu_pool.arena`).  A host device may fetch from any memory; a card only what is
page-locked.  Does not know: requests, rounds.
"""

from collections.abc import Mapping

import numpy as np

from strata.cpu_pool.arena import PARTS
from strata.experts.dispatch import dispatch
from strata.experts.residency import Residency
from strata.host.expert_memory import ExpertMemory
from strata.host.expert_parts import UNTIMED, Clock, ExpertPart
from strata.host.matrix import Entries
from strata.host.placed import PlacedMoe

HERE = np.zeros(1, np.int32)
"""The place of an expert whose blob is a buffer of its own."""


class DeviceTier:
    """One device's tier: residency, memory, and what it served.

    `share` in 256ths of the missed experts goes over PCIe.  `served` int64 [2, 3]: entries of windows that decode and of prompt
    chunks, by cache, PCIe, pool.  `reach` and `pool` are the seconds of the device's parts and the pool's in windows that decode.
    """

    def __init__(self, name: str, layers: Mapping[int, PlacedMoe], residency: Residency, memory: ExpertMemory, arena, share: int) -> None:
        self.name, self.layers, self.residency, self.memory, self.arena, self.share = name, layers, residency, memory, arena, share
        self.n_experts = residency.slot_of.shape[1]
        self.fetchable = np.ones((residency.slot_of.shape[0], self.n_experts), np.bool_)
        self.served = np.zeros((2, 3), np.int64)
        self.reach, self.pool = Clock(), Clock()

    @property
    def n_pairs(self) -> int:
        """Experts of the device's layers."""
        return len(self.layers) * self.n_experts

    @property
    def holds_all(self) -> bool:
        return self.residency.n_held == self.n_pairs

    def fill(self, pairs: np.ndarray) -> None:
        """Load pairs int32 [n, 2] (layer, expert) into the free slots, in order."""
        for slot, (layer, expert) in zip(self.residency.free_slots(), pairs.tolist(), strict=False):
            self.memory.load(layer, expert, int(slot))
            self.residency.settle(layer, expert, int(slot))

    def plan(self, layer: int, ids: np.ndarray, is_prompt: bool) -> tuple[Entries, np.ndarray, tuple[ExpertPart, ...]]:
        """Return one layer's entries, where each (row, rank) lies among them, and who computes them; fills the ring."""
        plan = dispatch(ids, self.residency.slot_of[layer], self.fetchable[layer], self.share, self.memory.n_places)
        self.served[int(is_prompt)] += plan.entries_by_place()
        cached, fetched = plan.n_cached, plan.n_cached + plan.n_fetched
        reach, pool = (UNTIMED, UNTIMED) if is_prompt else (self.reach, self.pool)
        parts = []
        if cached:
            parts.append(ExpertPart(*self.memory.cached(layer), plan.places[:cached], 0, cached, clock=reach))
        if fetched > cached:
            with reach:
                self.memory.stage(layer, plan.experts[cached:fetched])
            parts.append(ExpertPart(*self.memory.staged(layer), plan.places[cached:fetched], cached, fetched, clock=reach))
        if plan.n_jobs:
            parts += self._jobs(layer, plan.experts, fetched, pool)
        return Entries(plan.experts, plan.starts, plan.rows), plan.entry_of, tuple(parts)

    def _jobs(self, layer: int, experts: np.ndarray, first: int, clock) -> list[ExpertPart]:
        """Return the pool's parts: one job per expert; those of the mapped file share its banks and so one call."""
        placed, last = self.layers[layer], len(experts)
        if self.arena.mode == "mapped":
            return [ExpertPart(placed.gate, placed.up, placed.down, experts[first:], first, last, True, clock)]
        found = []
        for at in range(first, last):
            blobs = [self.arena.expert(layer, part, int(experts[at])) for part in PARTS]
            matrices = (matrix.over(blob, blob.size) for matrix, blob in zip((placed.gate, placed.up, placed.down), blobs, strict=True))
            found.append(ExpertPart(*matrices, HERE, at, at + 1, True, clock))
        return found

    def use_arena(self, arena) -> None:
        """Read experts from another arena from now on."""
        self.arena, self.memory.blob_of = arena, arena.expert

    def begin_run(self) -> None:
        """Forget what was served before."""
        self.served[:] = 0
        self.reach.seconds = self.pool.seconds = 0.0
