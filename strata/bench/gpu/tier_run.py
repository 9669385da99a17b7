"""The card's benchmark with a tier: bandwidths of card, RAM and link, then each model's windows with a share of the experts resident.

Models follow one another; a report grows as it is measured, and `save` is told after each step.  Does not know: how it is printed.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from strata.bench.bandwidth import MemoryReader, buffer_bytes
from strata.bench.gpu import rates, tier_windows
from strata.bench.gpu.clocks import TimedDevice, between_events
from strata.bench.gpu.ram_experts import RamArena, banks_in_ram, layers_over, ram_bytes, require_ram
from strata.bench.gpu.run import CANONICAL, KV, BenchSettings
from strata.bench.gpu.stage import fill_cells, require_room, stage_of, weights_of
from strata.bench.gpu.tier_windows import TierRates, TierSpeed
from strata.bench.gpu.tiered import open_tier, slots_of
from strata.bench.spread import Spread
from strata.cpu_pool.team import Team
from strata.cuda.card.device import CudaDevice
from strata.cuda.stage.executor import CudaExecutor
from strata.experts.usage import new_counts
from strata.model.weights import Weights
from strata.numerics.rounding import MODES
from strata.split.card_opening import POOL_SPIN_US

LINK_BYTES = 256 << 20
PURPOSE = "bandwidth of the link"


@dataclass(frozen=True, slots=True)
class TierSettings:
    """Share of the experts that is resident, share of the missed ones that the card fetches, threads of the pool."""

    resident: float
    pcie_frac: float
    n_threads: int


@dataclass(slots=True)
class TierModel:
    """One model: its experts' format, slots of the cache, bytes of all experts, and what was measured."""

    experts: str
    n_slots: int
    ram_bytes: int
    windows: list[TierSpeed] = field(default_factory=list)


@dataclass(slots=True)
class TierReport:
    """A card, bandwidths, and the models measured with it."""

    card: str
    capability: str
    rates: TierRates
    models: list[TierModel] = field(default_factory=list)


def measure(settings: BenchSettings, tiers: TierSettings, tell: Callable[[str], None], save: Callable[[TierReport], None]) -> TierReport:
    """Measure everything; raises DeviceError where there is no card, or a model fits neither there nor into RAM."""
    for experts in settings.experts:
        require_ram(weights_of(settings.config, settings.dense, experts, settings.head))
    device = TimedDevice(settings.index)
    try:
        with Team(tiers.n_threads, spin_us=POOL_SPIN_US) as team:
            tell("bandwidths of the card, of RAM and of the link")
            report = TierReport(device.card.name, ".".join(map(str, device.card.capability)), _rates(device, team, settings, tiers))
            for experts in settings.experts:
                _measure_model(device, team, settings, tiers, experts, report, tell, lambda: save(report))
                gc.collect()
                for purpose in list(device.taken):
                    device.give_back(purpose)
        return report
    finally:
        device.close()


def _rates(device: CudaDevice, team: Team, settings: BenchSettings, tiers: TierSettings) -> TierRates:
    card = rates.measure(device, settings.n_times, settings.copied_bytes).copy.median
    reader = MemoryReader(team.control, buffer_bytes())
    ram = Spread.of([reader.measure() for _ in range(settings.n_times + 1)][1:]).median
    return TierRates(card, ram, link_rate(device, settings.n_times) if tiers.pcie_frac else 0.0)


def link_rate(device: CudaDevice, n_times: int) -> float:
    """Return bytes per second of copies from page-locked memory to the card."""
    source, target = device.pinned(LINK_BYTES, np.uint8), device.empty(PURPOSE, LINK_BYTES, np.uint8)
    source[:] = 1
    times = [between_events(device, lambda: target.copy_to_device(source, stream=device.stream)) for _ in range(n_times + 1)][1:]
    del source, target
    device.give_back(PURPOSE)
    return 1e3 * LINK_BYTES / Spread.of(times).median


def _measure_model(device, team: Team, settings: BenchSettings, tiers: TierSettings, experts: str, report: TierReport, tell, save) -> None:
    config = settings.config
    weights = weights_of(config, settings.dense, experts, settings.head)
    model = TierModel(experts, slots_of(config, tiers.resident), ram_bytes(weights))
    report.models.append(model)
    tell(f"{experts} experts: {model.ram_bytes / 1e9:.0f} GB into RAM")
    banks = banks_in_ram(weights, tiers.n_threads)
    tell(f"{experts} experts: weights and cache of the card")
    n_slots = max(settings.rows, default=1)
    require_room(device, config, weights, n_slots, settings.context, tiers.resident)
    executor, copies = _executor(device, config, weights, settings, n_slots), None
    try:
        layers, arena = layers_over(weights, banks), RamArena(banks)
        tier, copies = open_tier(device, config, layers, arena, team, tiers.resident, tiers.pcie_frac, settings.seed)
        executor.tier, executor.routed = tier, new_counts(config.n_layers, config.n_experts)
        for n in (*settings.rows, *settings.chunks):
            tell(f"{experts} experts: windows of {n} rows")
            position = settings.chunk_position if n in settings.chunks else settings.position
            model.windows.append(tier_windows.measure(executor, tier, weights, n, position, settings.seed + n, settings.n_times))
            save()
    finally:
        executor.close()
        if copies is not None:
            copies.close()


def _executor(device, config, weights: Weights, settings: BenchSettings, n_slots: int) -> CudaExecutor:
    stage = stage_of(device, config, weights, settings.seed, routed=False)
    executor = CudaExecutor(device, config, stage, MODES[CANONICAL], KV, n_slots, settings.context)
    fill_cells(executor.sessions, settings.seed)
    return executor
