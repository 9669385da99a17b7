"""A synthetic model whose experts lie on the card in part: cache, residency, the pool's jobs, and what the card may fetch.

`BenchTier` is what the executor asks of a tier.  Which experts are resident is drawn from a seed, as many in every layer.
`aliased` makes the table say that all are, each in a slot of another: a card then computes all by itself, and the bits mean
nothing.  Does not know: windows, time.
"""

import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np

from strata.bench.gpu.floors import BANKS
from strata.bench.gpu.ram_experts import LayerExperts
from strata.cpu_pool.arena import Banks, MappedArena
from strata.cpu_pool.team import Team
from strata.cuda.device import CudaDevice
from strata.cuda.expert_cache import CardExpertMemory
from strata.errors import DeviceError
from strata.experts.dispatch import RING_BLOBS, share_of
from strata.experts.residency import ABSENT, Residency
from strata.host.expert_parts import Clock
from strata.host.pool_jobs import PoolJobs
from strata.model.config import ModelConfig

PIECE = 16
"""Bytes of a load: a card fetches blobs whose size and address are multiples of it."""


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


@dataclass(slots=True, eq=False)
class BenchTier:
    """Cache and table of a card; `share` in 256ths of the missed experts is fetched, from `sources` int64 [layers, experts, 3]."""

    memory: CardExpertMemory
    residency: Residency
    share: int
    sources: np.ndarray
    jobs: CountedJobs
    sources_version: int = 0
    served: np.ndarray = field(default_factory=lambda: np.zeros((2, 3), np.int64))
    reach: Clock = field(default_factory=Clock)
    pool: Clock = field(default_factory=Clock)
    prompt_pool: Clock = field(default_factory=Clock)


def resident_experts(n_experts: int, share: float, seed: int, layer: int) -> np.ndarray:
    """Return which experts of a layer are resident, int64 [n], one at least."""
    n = max(1, round(share * n_experts))
    return np.sort(np.random.default_rng((seed, layer)).permutation(n_experts)[:n])


def slots_of(config: ModelConfig, share: float) -> int:
    """Return the slots of a cache that holds a share of every layer's experts."""
    return config.n_layers * max(1, round(share * config.n_experts))


def open_tier(
    device: CudaDevice, config: ModelConfig, layers: dict[int, LayerExperts], banks: Banks, team: Team, resident: float, pcie_frac: float, seed: int
) -> BenchTier:
    """Open a tier over banks in RAM and fill its cache; page-locks the banks where a share is to be fetched."""
    arena = MappedArena(banks)
    share = share_of(pcie_frac)
    n_slots, n_places = slots_of(config, resident), min(RING_BLOBS, config.n_experts) if share else 0
    memory = CardExpertMemory(device, layers, n_slots, n_places, arena.expert)
    residency, slot = Residency(config.n_layers, config.n_experts, n_slots), 0
    for layer in layers:
        for expert in resident_experts(config.n_experts, resident, seed, layer).tolist():
            memory.load(layer, expert, slot)
            residency.settle(layer, expert, slot)
            slot += 1
    jobs = PoolJobs(layers, arena, team, (nullcontext(), nullcontext()), Counter())
    sources = lock_banks(device, config, banks) if share else np.zeros((config.n_layers, config.n_experts, len(BANKS)), np.int64)
    return BenchTier(memory, residency, share, sources, CountedJobs(jobs))


def lock_banks(device: CudaDevice, config: ModelConfig, banks: Banks) -> np.ndarray:
    """Page-lock all banks; return each blob's address for the card, int64 [layers, experts, 3]; raises DeviceError where the driver refuses."""
    sources = np.zeros((config.n_layers, config.n_experts, len(BANKS)), np.int64)
    for (layer, part), bank in banks.of.items():
        address = device.register(bank)
        if address is None:
            raise DeviceError(f"page-locking {bank.nbytes / 1e9:.2f} GB of RAM", "the driver refuses", "leave --pcie-frac out, or use fewer --layers")
        if bank.shape[1] % PIECE == 0 and address % PIECE == 0:
            sources[layer, :, BANKS.index(part)] = address + np.arange(len(bank), dtype=np.int64) * bank.shape[1]
    return sources


def unlock_banks(device: CudaDevice, banks: Banks) -> None:
    """Let the pages go again; nothing may be fetching."""
    for bank in banks.of.values():
        device.unregister(bank)


class Aliased:
    """A context in which every missed expert is said to lie in the slot of a resident one of its layer."""

    def __init__(self, tier: BenchTier) -> None:
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
