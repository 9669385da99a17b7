"""The card's benchmark as a whole: rates of the card, then each model's windows, chunks, profile, tax and memory.

Models follow one another on the card; a report grows as it is measured, and `save` is told after each step.
Does not know: how a report is printed.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass, field

from strata.bench.gpu import kernel_times, rates, tax, windows
from strata.bench.gpu.clocks import TimedDevice
from strata.bench.gpu.kernel_times import Profile
from strata.bench.gpu.rates import Rates
from strata.bench.gpu.recorded import SizedWorkspace
from strata.bench.gpu.specs import specs_in
from strata.bench.gpu.stage import fill_cells, require_room, stage_of, weights_of
from strata.bench.gpu.tax import Tax
from strata.bench.gpu.traffic import weights_on
from strata.bench.gpu.windows import WindowSpeed, decode_window, prompt_window
from strata.cuda.stage.executor import CudaExecutor
from strata.errors import StrataError
from strata.model.config import ModelConfig
from strata.numerics.rounding import MODES

CANONICAL, KV = "canonical", "f16"


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What to measure: formats, row counts of decode windows and of prompt chunks, their first positions, repetitions.

    `profiled` are row counts, among those measured, whose launches are timed one by one.
    """

    config: ModelConfig
    index: int
    dense: str
    experts: tuple[str, ...]
    head: str
    rows: tuple[int, ...]
    chunks: tuple[int, ...]
    profiled: tuple[int, ...]
    position: int
    chunk_position: int
    context: int
    seed: int
    n_times: int
    copied_bytes: int = rates.COPIED_BYTES


@dataclass(slots=True)
class ModelReport:
    """One model: its experts' format, bytes of its weights, and what was measured; memory in bytes."""

    experts: str
    weight_bytes: int
    windows: list[WindowSpeed] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)
    taxes: list[Tax] = field(default_factory=list)
    predicted_bytes: int = 0
    reported_bytes: int = 0
    remarks: list[str] = field(default_factory=list)

    @property
    def memory_error(self) -> float:
        """Predicted over reported use, less one, in percent."""
        return 100 * (self.predicted_bytes / self.reported_bytes - 1) if self.reported_bytes else 0.0


@dataclass(slots=True)
class Report:
    """A card, its rates, and the models measured on it."""

    card: str
    capability: str
    rates: Rates
    models: list[ModelReport] = field(default_factory=list)


def measure(settings: BenchSettings, tell: Callable[[str], None], save: Callable[[Report], None]) -> Report:
    """Measure everything; raises DeviceError where there is no card, or a model does not fit on it."""
    device = TimedDevice(settings.index)
    try:
        tell("rates of the card")
        report = Report(device.card.name, ".".join(map(str, device.card.capability)), rates.measure(device, settings.n_times, settings.copied_bytes))
        for experts in settings.experts:
            model = ModelReport(experts, 0)
            report.models.append(model)
            _measure_model(device, settings, model, lambda what, name=experts: tell(f"{name} experts: {what}"), lambda: save(report))
            gc.collect()
            for purpose in list(device.taken):
                device.give_back(purpose)
        return report
    finally:
        device.close()


def _measure_model(device: TimedDevice, settings: BenchSettings, model: ModelReport, tell, save) -> None:
    config = settings.config
    tell("generating weights")
    weights = weights_of(config, settings.dense, model.experts, settings.head)
    model.weight_bytes = sum(spec.n_bytes for spec in specs_in(weights))
    n_slots = max(settings.rows, default=1)
    require_room(device, config, weights, n_slots, settings.context)
    stage = stage_of(device, config, weights, settings.seed)
    executor = CudaExecutor(device, config, stage, MODES[CANONICAL], KV, n_slots, settings.context)
    executor.work = SizedWorkspace(device, executor.work.purpose)
    fill_cells(executor.sessions, settings.seed)
    at = weights_on(stage, weights)
    try:
        for n in (*settings.rows, *settings.chunks):
            tell(f"windows of {n} rows")
            is_chunk = n in settings.chunks
            make, position = (prompt_window, settings.chunk_position) if is_chunk else (decode_window, settings.position)
            window = make(n, position, config.vocabulary, settings.seed + n)
            measured = windows.measure(executor, weights, at, window, settings.n_times)
            model.windows.append(measured.speed)
            memory = device.memory()
            model.predicted_bytes, model.reported_bytes = memory.taken_bytes, memory.reported_bytes
            save()
            if n in settings.profiled:
                tell(f"launches of {n} rows")
                model.profiles.append(kernel_times.profile(device, measured, settings.n_times))
                save()
        tell("the canonical tax")
        try:
            model.taxes += tax.measure(device, stage, max(settings.chunks, default=0), settings.n_times)
        except StrataError as error:
            model.remarks.append(f"no canonical tax: {error}")
        save()
    finally:
        executor.close()
