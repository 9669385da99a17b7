"""A device's expert tier: which experts lie in its cache, where the others are read, and what was served.

What host devices (`host_tier.py`) and cards (`card_tier.py`) share.  Does not know: requests, rounds, who computes.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from strata.cpu_pool.team import Team
from strata.experts.residency import ABSENT, Residency
from strata.host.expert_parts import Clock, PoolClock
from strata.host.placed import PlacedMoe
from strata.rows import Window


class ExpertStore(Protocol):
    """A device's memory for experts, slots of a cache and places of a staging ring: `strata.host.expert_memory`, `strata.cuda.tier.expert_cache`."""

    slot_bytes: int
    n_places: int
    blob_of: Callable[[int, str, int], np.ndarray]

    def load(self, layer: int, expert: int, slot: int) -> None: ...
    def saved(self, layer: int, slot: int) -> dict[str, np.ndarray]: ...
    def stage(self, layer: int, experts: np.ndarray) -> None: ...
    def lendable(self, first_slot: int): ...


class DeviceTier:
    """One device's tier: residency, memory, and what it served.

    `share` in 256ths of the missed experts goes over PCIe, in windows that want no other one `own_share`.  `served` int64 [2, 3]: entries of windows that decode and of prompt
    chunks, by cache, PCIe, pool; `blobs` experts that the pool read from each of the arena's banks.  `reach` and `pool` are the
    seconds of the device's parts and the pool's in windows that decode; `team` the threads of the pool, whose pieces are counted.
    """

    def __init__(self, name: str, layers: Mapping[int, PlacedMoe], residency: Residency, memory: ExpertStore, arena, share: int, team: Team | None = None) -> None:
        self.name, self.layers, self.residency, self.memory, self.arena = name, layers, residency, memory, arena
        self.share = self.own_share = share
        self.n_experts = residency.slot_of.shape[1]
        self.served, self.blobs = np.zeros((2, 3), np.int64), Counter()
        self.reach, self.pool, self.prompt_pool = Clock(), PoolClock(team), PoolClock(team)
        self._lent: list[tuple[int, int, int]] = []

    @property
    def n_pairs(self) -> int:
        """Experts of the device's layers."""
        return len(self.layers) * self.n_experts

    @property
    def holds_all(self) -> bool:
        return self.residency.n_held == self.n_pairs

    def set_share(self, share: int) -> None:
        """Set the device's share."""
        self.share = self.own_share = share

    def prepare(self, window: Window) -> None:
        """Have a window's missed experts go over PCIe by the share that it wants; called by whoever computes it, ahead of it."""
        self.share = self.own_share if window.share is None else window.share

    def fill(self, pairs: np.ndarray) -> None:
        """Load pairs int32 [n, 2] (layer, expert) into the free slots, in order."""
        for slot, (layer, expert) in zip(self.residency.free_slots(), pairs.tolist(), strict=False):
            self.memory.load(layer, expert, int(slot))
            self.residency.settle(layer, expert, int(slot))

    def lend(self, n_slots: int) -> tuple[np.ndarray, int]:
        """Lend the last n_slots slots, further ones where some are lent; return their memory and how many are new."""
        table = self.residency
        first, lent = table.n_slots - n_slots, table.n_slots - len(self._lent)
        self._lent += [(slot, *table.lend(slot)) for slot in range(lent - 1, first - 1, -1)]
        return self.memory.lendable(first), lent - first

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

    def use_arena(self, arena) -> None:
        """Read experts from another arena from now on."""
        self.arena, self.memory.blob_of = arena, arena.expert

    def exchange(self, layer: int, leaves: int, comes: int, blobs: Mapping[str, np.ndarray]) -> None:
        """A swap moved `leaves` into the cache and `comes` (its blobs by part) out of it: let the arena keep a copy where it does."""
        self.arena.exchange(layer, leaves, comes, blobs)

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

    def close(self) -> None:
        """Let go of what the tier opened; nothing may be computing."""
