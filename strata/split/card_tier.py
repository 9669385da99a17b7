"""A card's expert tier: what its executor reads before and behind a window.

The card dispatches by itself (`strata.cuda.tier.dispatching`): it reads the residency table and `sources`, and sends what it does not
compute to `jobs`, which the thread that runs the window calls.  Does not know: launches, requests, rounds.
"""

from collections.abc import Mapping

import numpy as np

from strata.cpu_pool.team import Team
from strata.experts.residency import Residency
from strata.host.placed import PlacedMoe
from strata.host.pool_jobs import PoolJobs
from strata.split.locked_copies import NOWHERE, LockedCopies
from strata.split.tiers import DeviceTier, ExpertStore


class CardTier(DeviceTier):
    """The tier of a card; figures as `DeviceTier`.

    `sources` int64 [layers, experts, 3]: where the card reads an expert's gate, up and down in page-locked RAM, 0 where it can
    not; `sources_version` counts changes of it.  `jobs` computes experts on `team`; its executor keeps the clocks.  The team and the
    page-locked copies are the tier's own.
    """

    def __init__(self, name: str, layers: Mapping[int, PlacedMoe], residency: Residency, memory: ExpertStore, arena, share: int, team: Team) -> None:
        super().__init__(name, layers, residency, memory, arena, share, team)
        self.jobs = self._pool_jobs = PoolJobs(layers, arena, team, self.blobs)
        self.sources, self.sources_version = np.zeros((*residency.slot_of.shape, 3), np.int64), 0
        self._team = team
        self._copies: LockedCopies | None = None

    @property
    def n_fetchable(self) -> int:
        """Experts that the card can fetch."""
        return int((self.sources[:, :, 0] != NOWHERE).sum())

    def use_arena(self, arena) -> None:
        """Read experts from another arena from now on."""
        super().use_arena(arena)
        self._pool_jobs.use_arena(arena)

    def use_copies(self, copies: LockedCopies) -> None:
        """Fetch from copies of the arena's that are page-locked; once, when the arena is the last one."""
        self._copies = copies
        copies.fill(self.sources, self.layers)
        self.sources_version += 1

    def exchange(self, layer: int, leaves: int, comes: int, blobs: Mapping[str, np.ndarray]) -> None:
        """As of `DeviceTier`; the card fetches the two where they lie now."""
        super().exchange(layer, leaves, comes, blobs)
        self._pool_jobs.renew(layer, leaves, comes)
        if self._copies is not None:
            for expert in (leaves, comes):
                self.sources[layer, expert] = self._copies.addresses(layer, expert)
            self.sources_version += 1

    def close(self) -> None:
        """Stop the threads, and have the copies unlocked."""
        self._team.close()
        if self._copies is not None:
            self._copies.close()
