"""Expert tiers: per device, which experts lie in its cache, and what of a window's layer is computed where.

`DeviceTier.plan` joins the dispatch of one layer with the memory that its parts read: cache slots, places of the staging
ring, and, for the CPU pool, the arena (`strata.cpu_pool.arena`).  A host device may fetch from any memory; a card only what is
page-locked.  Does not know: requests, rounds.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter

import numpy as np

from strata.cpu_pool.arena import PARTS
from strata.cpu_pool.team import Team
from strata.experts.dispatch import dispatch
from strata.experts.residency import ABSENT, Residency
from strata.host.expert_memory import ExpertMemory
from strata.host.expert_parts import UNTIMED, Clock, ExpertPart, PoolClock
from strata.host.matrix import Entries, Matrix
from strata.host.placed import PlacedMoe


class DeviceTier:
    """One device's tier: residency, memory, and what it served.

    `share` in 256ths of the missed experts goes over PCIe.  `served` int64 [2, 3]: entries of windows that decode and of prompt
    chunks, by cache, PCIe, pool; `blobs` experts that the pool read from each of the arena's banks.  `reach` and `pool` are the
    seconds of the device's parts and the pool's in windows that decode; `team` the threads of the pool, whose pieces are counted.
    """

    def __init__(self, name: str, layers: Mapping[int, PlacedMoe], residency: Residency, memory: ExpertMemory, arena, share: int, team: Team | None = None) -> None:
        self.name, self.layers, self.residency, self.memory, self.arena, self.share = name, layers, residency, memory, arena, share
        self.n_experts = residency.slot_of.shape[1]
        self.fetchable = np.ones((residency.slot_of.shape[0], self.n_experts), np.bool_)
        self.served, self.blobs = np.zeros((2, 3), np.int64), Counter()
        self.reach, self.pool, self.prompt_pool = Clock(), PoolClock(team), PoolClock(team)
        self._lent: list[tuple[int, int, int]] = []
        self._banks: dict[tuple[str, int], tuple[Matrix, ...]] = {}

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

    def lend(self, n_slots: int) -> tuple[np.ndarray, int]:
        """Lend the last n_slots slots, further ones where some are lent; return their memory uint8 and how many are new."""
        table, size = self.residency, self.memory.slot_bytes
        first, lent = table.n_slots - n_slots, table.n_slots - len(self._lent)
        self._lent += [(slot, *table.lend(slot)) for slot in range(lent - 1, first - 1, -1)]
        return self.memory.cache[first * size :], lent - first

    def take_back(self) -> int:
        """Load the experts of all lent slots again and make them resident; return how many."""
        lent, self._lent = self._lent, []
        for slot, layer, expert in lent:
            if layer == ABSENT:
                self.residency.release(slot)
            else:
                self.memory.load(layer, expert, slot)
                self.residency.settle(layer, expert, slot)
        return sum(layer != ABSENT for _, layer, _ in lent)

    def plan(self, layer: int, ids: np.ndarray, is_prompt: bool) -> tuple[Entries, np.ndarray, tuple[ExpertPart, ...]]:
        """Return one layer's entries, where each (row, rank) lies among them, and who computes them; fills the ring."""
        plan = dispatch(ids, self.residency.slot_of[layer], self.fetchable[layer], self.share, self.memory.n_places)
        self.served[int(is_prompt)] += plan.entries_by_place()
        cached, fetched = plan.n_cached, plan.n_cached + plan.n_fetched
        reach, pool = (UNTIMED, self.prompt_pool) if is_prompt else (self.reach, self.pool)
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
        """Return the pool's parts: one job per expert; neighbours in the list that are read from one bank share a call."""
        sources = [self.arena.source(layer, expert) for expert in experts[first:].tolist()]
        found, at = [], first
        for bank, run in groupby(sources, key=itemgetter(0)):
            places = np.array([place for _, place in run], np.int32)
            self.blobs[bank] += len(places)
            found.append(ExpertPart(*self._pooled(bank, layer), places, at, at + len(places), True, clock))
            at += len(places)
        return found

    def _pooled(self, bank: str, layer: int) -> tuple[Matrix, ...]:
        """Return a layer's gate, up and down over a bank of the arena."""
        if (bank, layer) not in self._banks:
            blobs = [self.arena.bank(bank, layer, part) for part in PARTS]
            placed = (getattr(self.layers[layer], part) for part in PARTS)
            self._banks[bank, layer] = tuple(matrix.over(blob.reshape(-1), blob.shape[1]) for matrix, blob in zip(placed, blobs, strict=True))
        return self._banks[bank, layer]

    def use_arena(self, arena) -> None:
        """Read experts from another arena from now on."""
        self.arena, self.memory.blob_of = arena, arena.expert
        self._banks.clear()

    def begin_run(self) -> None:
        """Forget what was served before."""
        self.served[:] = 0
        self.blobs.clear()
        self.reach.seconds = 0.0
        self.pool.clear()
        self.prompt_pool.clear()

    @property
    def pool_pieces(self) -> int:
        """Pieces of the pool's jobs that workers ran."""
        return self.pool.pieces + self.prompt_pool.pieces
