"""A synthetic model whose experts lie on the card in part: the engine's own tier over banks in RAM, its cache filled by lot.

As many experts of every layer are resident, drawn from a seed.  `Aliased` makes the table say that all are, each in the slot of
another: the card then computes all by itself, and the bits mean nothing.  Does not know: windows, time.
"""

import time
from collections.abc import Mapping

import numpy as np

from strata.bench.gpu.ram_experts import LayerExperts, RamArena
from strata.cpu_pool.team import Team
from strata.cuda.card.device import CudaDevice
from strata.cuda.tier.expert_cache import CardExpertMemory
from strata.errors import DeviceError
from strata.experts.dispatch import RING_BLOBS, share_of
from strata.experts.residency import ABSENT, Residency
from strata.host.pool_jobs import PoolJobs
from strata.model.config import ModelConfig
from strata.split.card_tier import CardTier
from strata.split.locked_copies import LockedCopies


class CountedJobs:
    """The pool's jobs, counted: calls, experts, seconds.  While `is_idle` nothing is computed: what lies in `out` is the answer."""

    def __init__(self, jobs: PoolJobs) -> None:
        self._jobs, self.is_idle = jobs, False
        self.n_calls = self.n_experts = 0
        self.seconds = 0.0

    def compute(self, layer, experts, starts, rows, values, out, is_prompt) -> None:
        """As PoolJobs.compute."""
        started = time.perf_counter()
        if not self.is_idle:
            self._jobs.compute(layer, experts, starts, rows, values, out, is_prompt)
        self.seconds += time.perf_counter() - started
        self.n_calls += 1
        self.n_experts += len(experts)

    def clear(self) -> None:
        """Forget what was counted."""
        self.n_calls = self.n_experts = 0
        self.seconds = 0.0


def resident_experts(n_experts: int, share: float, seed: int, layer: int) -> np.ndarray:
    """Return which experts of a layer are resident, int64 [n], one at least."""
    n = max(1, round(share * n_experts))
    return np.sort(np.random.default_rng((seed, layer)).permutation(n_experts)[:n])


def slots_of(config: ModelConfig, share: float) -> int:
    """Return the slots of a cache that holds a share of every layer's experts."""
    return config.n_layers * max(1, round(share * config.n_experts))


def open_tier(
    device: CudaDevice, config: ModelConfig, layers: Mapping[int, LayerExperts], arena: RamArena, team: Team, resident: float, pcie_frac: float, seed: int
) -> tuple[CardTier, LockedCopies | None]:
    """Open a tier over an arena and fill its cache; page-locks the arena where a share is to be fetched, for the caller to close."""
    n_slots, share = slots_of(config, resident), share_of(pcie_frac)
    memory = CardExpertMemory(device, layers, n_slots, min(RING_BLOBS, config.n_experts) if share else 0, arena.expert)
    tier = CardTier(device.name, layers, Residency(config.n_layers, config.n_experts, n_slots), memory, arena, share, team)
    drawn = [(layer, expert) for layer in layers for expert in resident_experts(config.n_experts, resident, seed, layer).tolist()]
    tier.fill(np.array(drawn, np.int32))
    _compile_jobs(tier)
    tier.jobs = CountedJobs(tier.jobs)
    if not share:
        return tier, None
    copies = LockedCopies(arena, device)
    tier.use_copies(copies)
    if copies.n_refused:
        copies.close()
        raise DeviceError(f"page-locking {copies.n_refused / 1e9:.1f} GB of RAM", "the driver refuses", "leave --pcie-frac out, or use fewer --layers")
    return tier, copies


def _compile_jobs(tier: CardTier) -> None:
    """Compute an expert once, so that no window waits for the pool's kernels to be compiled."""
    layer, experts = next(iter(tier.layers.items()))
    first, starts = np.zeros(1, np.int32), np.arange(2, dtype=np.int32)
    values, out = np.ones((1, experts.gate.n_in), np.float32), np.empty((1, experts.down.n_out), np.float32)
    tier.jobs.compute(layer, first, starts, first, values, out, False)


class Aliased:
    """A context in which every missed expert is said to lie in the slot of a resident one of its layer."""

    def __init__(self, tier: CardTier) -> None:
        self._table = tier.residency
        self._true = self._table.slot_of.copy()

    def __enter__(self) -> None:
        for slots in self._table.slot_of:
            held = slots[slots != ABSENT]
            if len(held):
                slots[slots == ABSENT] = np.resize(held, int((slots == ABSENT).sum()))
        self._table.version += 1

    def __exit__(self, *_: object) -> None:
        self._table.slot_of[:] = self._true
        self._table.version += 1
