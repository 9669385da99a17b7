"""What a stage's router chose, logged in mapped memory and counted behind each window: for profiles of devices that hold all experts.

Stands where `meeting.Meetings` stands with a tier: there is nothing to serve.  Shapes: log int32 [layers, rows * K].
Does not know: tiers, who wants the counts.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.graphs import GraphTable
from strata.cuda.card.launch import Launch, Shape, send
from strata.cuda.machine.seam import Target, kernel, launch_dependents, wait_for_dependency
from strata.cuda.memory.placed import Part
from strata.cuda.memory.workspace import PLACES, Workspace
from strata.cuda.packed.products import Lists
from strata.cuda.tier.mailbox import ROW_STEP, Mapped, mapped
from strata.model.config import ModelConfig
from strata.numerics import cpu
from strata.rows import Window

THREADS = 256


@cache
def log_kernel(target: Target):
    """Return kernel(first, n_entries, ids, log): one block copies a layer's ids to log[first ..]."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(first, n_entries, ids, log):
        go_on()
        wait_before()
        for entry in range(np.int32(cuda.threadIdx.x), n_entries, THREADS):
            log[first + entry] = ids[entry]

    return run


@cpu.kernel
def count_entries(log, n_entries, counts):
    """Add the chosen experts of a stage's layers, `n_entries` each, to counts int32 [layers, E]."""
    for place in range(counts.shape[0]):
        for entry in range(n_entries):
            counts[place, log[place * n_entries + entry]] += 1


def count_window(log: Mapped, window: Window, config: ModelConfig, layers: Sequence[int], routed: np.ndarray) -> None:
    """Add a window's log to routed int32 [2, layers of the model, E] (decoded, read)."""
    counts = routed[int(window.is_prompt), layers[0] : layers[0] + len(layers)]
    count_entries(log.host, window.n_rows * config.n_used, counts)


class RoutingLog:
    """Logs the choices of the stage with `layers`, in windows that run one at a time."""

    tier = None

    def __init__(self, device: CudaDevice, config: ModelConfig, layers: Sequence[int], work: Workspace) -> None:
        self.device, self.config, self.layers, self.work = device, config, tuple(layers), work
        self._n_rows = PLACES
        self.log = self._made(PLACES)

    def recorder(self, layer: int, work: Workspace, n_rows: int, add: Callable) -> "LogRecorder":
        """Return what lists a layer's launch; programs recorded before a wider window came hold old addresses."""
        if n_rows > self._n_rows:
            self.device.synchronise()
            self._n_rows = -(-n_rows // ROW_STEP) * ROW_STEP
            self.log = self._made(self._n_rows)
            self.work.generation += 1
        return LogRecorder(self, self.layers.index(layer), n_rows, add)

    def _made(self, n_rows: int) -> Mapped:
        return mapped(self.device, len(self.layers) * n_rows * self.config.n_used, np.int32)

    def begin(self) -> None:
        """Nothing comes before a window."""

    def abort(self) -> None:
        """Nothing is left of a window that failed."""

    def replay(self, graphs: GraphTable, key: tuple, launches: Sequence[Launch], window: Window) -> None:
        """Replay a window's graph."""
        graphs.run(key, launches)

    def sender(self, window: Window) -> Callable[[Sequence[Launch]], None]:
        """Return what sends launches one by one."""
        return send

    def end(self, window: Window, routed: np.ndarray | None) -> None:
        """Count what a window whose stream has ended chose."""
        if routed is not None:
            count_window(self.log, window, self.config, self.layers, routed)


class LogRecorder:
    """Lists the launch that logs one layer's choice, where `record_tier.TierRecorder` lists a tier's."""

    has_jobs = False

    def __init__(self, log: RoutingLog, place: int, n_rows: int, add: Callable) -> None:
        self.log, self.place, self.n_entries, self.add = log, place, n_rows * log.config.n_used, add

    def dispatch(self, w: Part, ids, lists: Lists, entry_of, values) -> tuple[Part, Lists, object]:
        """Log the choice, and leave all as it is."""
        device, shape = self.log.device, Shape((1, 1), THREADS)
        arguments = (np.int64(self.place * self.n_entries), np.int32(self.n_entries), ids, self.log.log.card)
        self.add(Launch(device, log_kernel(device.target), shape, arguments))
        return w, lists, entry_of

    def meet(self, outputs) -> None:
        """Nobody else computes."""
