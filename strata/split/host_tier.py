"""A host device's expert tier: what of a window's layer is computed where.

`HostTier.plan` joins the dispatch of one layer with the memory that its parts read: cache slots, places of the staging
ring, and, for the CPU pool, the arena (`strata.cpu_pool.arena`).  A host device may fetch from any memory.
Does not know: requests, rounds.
"""

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter

import numpy as np

from strata.cpu_pool.team import Team
from strata.experts.dispatch import dispatch
from strata.experts.residency import Residency
from strata.host.expert_memory import ExpertMemory
from strata.host.expert_parts import UNTIMED, ExpertPart, over_bank
from strata.host.matrix import Entries, Matrix
from strata.host.placed import PlacedMoe
from strata.split.tiers import DeviceTier


class HostTier(DeviceTier):
    """The tier of a host device, asked for the parts of a layer by its executors; figures as `DeviceTier`."""

    def __init__(self, name: str, layers: Mapping[int, PlacedMoe], residency: Residency, memory: ExpertMemory, arena, share: int, team: Team | None = None) -> None:
        super().__init__(name, layers, residency, memory, arena, share, team)
        self.fetchable = np.ones(residency.slot_of.shape, np.bool_)
        self._banks: dict[tuple[str, int], tuple[Matrix, ...]] = {}

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
            self._banks[bank, layer] = over_bank(self.layers[layer], self.arena, bank, layer)
        return self._banks[bank, layer]

    def use_arena(self, arena) -> None:
        """Read experts from another arena from now on."""
        super().use_arena(arena)
        self._banks.clear()
