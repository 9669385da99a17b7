"""Windows of the real executor, measured: decode windows of single rows, and prompt chunks.

Device time is that of the executor's own launches between two events: replays of a graph of them for windows of up to eight
rows, as the executor replays them; for prompt chunks the launches as they are sent.  Wall time is that of `run_window`, with all
that Python does and the copy of logits to the host; the host's part of it is what is not spent waiting for the card.
Does not know: tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.bench.gpu.clocks import between_events, graph_ms, host_us
from strata.bench.gpu.floors import Floor, Load, Operations, floor_of, load_of, operations_of
from strata.bench.gpu.recorded import GDN, QSA, Recorded, WatchedPass, record
from strata.bench.gpu.traffic import Traffic, Weight
from strata.bench.spread import Spread
from strata.cuda.card.launch import send
from strata.cuda.memory.workspace import PLACES
from strata.cuda.packed.products import Lists
from strata.cuda.stage.executor import CudaExecutor
from strata.model.weights import Weights
from strata.rows import Segment, Window

WARM_UP = 2


@dataclass(frozen=True, slots=True)
class WindowSpeed:
    """A window: rows, first position; milliseconds on the card and by the wall clock; microseconds of the host per layer.

    `distinct` is how many experts a layer takes on average; kernels are launches per layer.
    """

    n_rows: int
    position: int
    device_ms: Spread
    wall_ms: Spread
    host_us_per_layer: Spread
    distinct: float
    floor: Floor
    operations: Operations
    n_launches: int
    kernels_gdn: float
    kernels_qsa: float
    kernels_mean: float

    @property
    def tokens_per_second(self) -> float:
        """By the card's own time."""
        return 1e3 * self.n_rows / self.device_ms.median

    @property
    def wall_tokens_per_second(self) -> float:
        return 1e3 * self.n_rows / self.wall_ms.median

    def bytes_ms(self, bandwidth: float) -> float:
        """Milliseconds that the bytes need at a bandwidth in bytes per second."""
        return 1e3 * self.floor.total / bandwidth

    def int8_ms(self, rate: float) -> float:
        """Milliseconds that the int8 operations need at a rate."""
        return 1e3 * self.operations.int8 / rate

    def fused_ms(self, rate: float) -> float:
        """Milliseconds that the fused multiply-adds need at a rate."""
        return 1e3 * self.operations.fused / rate

    def floor_ms(self, bandwidth: float, int8: float, fused: float) -> float:
        """The largest of the three: memory, tensor cores and float units may work at the same time."""
        return max(self.bytes_ms(bandwidth), self.int8_ms(int8), self.fused_ms(fused))


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A window's speed, with what a profile of it needs."""

    speed: WindowSpeed
    recorded: Recorded
    traffic: Traffic


def decode_window(n_rows: int, position: int, vocabulary: int, seed: int) -> Window:
    """Return a window of n_rows conversations (slot = row), each with one row at a position."""
    tokens = np.random.default_rng(seed).integers(0, vocabulary, n_rows)
    return Window.of([Segment(row, position, (int(token),)) for row, token in enumerate(tokens)], keep=True)


def prompt_window(n_rows: int, position: int, vocabulary: int, seed: int) -> Window:
    """Return a chunk of a prompt of slot 0; the last row wants logits."""
    tokens = np.random.default_rng(seed).integers(0, vocabulary, n_rows)
    return Window.of([Segment(0, position, tuple(int(token) for token in tokens))], keep=True)


def measure(executor: CudaExecutor, weights: Weights, at: dict[int, Weight], window: Window, n_times: int) -> Measured:
    """Measure one window shape; `at` is `traffic.weights_on` of the executor's stage."""
    watched = WatchedPass()
    record(executor, window, watched)
    for _ in range(WARM_UP):
        executor.run_window(window, None, watched)
    device, config = executor.device, executor.config
    times = [host_us(device, lambda: executor.run_window(window, None, watched)) for _ in range(n_times)]
    recorded = record(executor, window, watched)
    if window.n_rows <= PLACES:
        device_ms = graph_ms(device, recorded.program.launches, n_times)
    else:
        device_ms = Spread.of([between_events(device, lambda: send(recorded.program.launches)) for _ in range(n_times)])
    counts = distinct_experts(executor, recorded, watched.lists)
    load = _load(executor, window, sum(counts))
    distinct = sum(counts) / max(1, len(counts))
    speed = WindowSpeed(
        window.n_rows, int(window.positions[0]), device_ms, Spread.of([wall / 1e3 for wall, _ in times]),
        Spread.of([host / config.n_layers for _, host in times]), distinct, floor_of(config, weights, load),
        operations_of(config, weights, load), recorded.n_launches, recorded.per_layer(GDN), recorded.per_layer(QSA), recorded.kernels_per_layer,
    )
    return Measured(speed, recorded, Traffic(executor, at, window, distinct))


def _load(executor: CudaExecutor, window: Window, distinct: float) -> Load:
    segments = [(segment.start, len(segment.tokens)) for segment in window.segments]
    return load_of(executor.config, segments, len(window.logit_rows), distinct)


def distinct_experts(executor: CudaExecutor, recorded: Recorded, lists: Lists) -> Sequence[int]:
    """Return how many experts each layer takes: the launches are sent one by one, and after a layer's the list is read back."""
    counts = []
    for section in recorded.sections:
        send(section.launches)
        if section.layer >= 0:
            executor.device.synchronise()
            counts.append(int(lists.n_listed.copy_to_host()[0]))
    executor.device.synchronise()
    return counts
