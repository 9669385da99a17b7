"""The meetings of a stage's layers with the CPU pool: tables sent before a window, messages served meanwhile, counts taken behind it.

The thread that runs a window serves it, layer by layer in compiled calls (`serving`) or, in prompt chunks and where somebody looks on, by
calling the jobs.  A replayed graph runs by itself, and its layers' messages are served in order; launches that
are sent one by one (prompt chunks, observed windows, the simulator) are served ahead of those that wait.  Whatever fails meanwhile
ends the window: kernels are told to wait no more, the stream is waited for, and all steps start again.
Does not know: which expert lies where and why, how jobs are computed.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np

from strata.cpu_pool.atomics import clock_ns, load_flag, store_flag
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.graphs import GraphTable
from strata.cuda.card.launch import Launch
from strata.cuda.machine.seam import SIMULATED
from strata.cuda.memory.workspace import PLACES, Workspace
from strata.cuda.tier.expert_cache import CardExpertMemory
from strata.cuda.tier.mailbox import (
    ABORTED, CACHED_ENTRIES, FETCHED_ENTRIES, FIELDS, FLAG, JOB_ENTRIES, N_JOBS, N_ROWS, RUNNING, STEP_MASK, Mailbox,
)
from strata.cuda.tier.meeting_kernels import PATIENCE_NS, send_served
from strata.cuda.tier.record_tier import TierRecorder
from strata.cuda.tier.routing_log import count_window
from strata.cuda.tier.serving import COMPUTED, SILENT, STOPPED, WAITED, has_message, server
from strata.cuda.tier.tier_tables import TierTables
from strata.errors import DeviceError
from strata.model.config import ModelConfig
from strata.numerics.cpu import kernel
from strata.rows import Window

SLICE_NS = 1_000_000_000
"""How long a message is waited for before the stream is looked at."""


class Jobs(Protocol):
    """The CPU pool's side: computes experts' outputs and returns when they are written, or gives the code that does; raises PoolJobError."""

    def compiled(self, layer: int, n_rows: int, n_entries: int): ...

    def served(self, layer: int, experts: np.ndarray) -> None: ...

    def compute(
        self, layer: int, experts: np.ndarray, starts: np.ndarray, rows: np.ndarray, values: np.ndarray, out: np.ndarray, is_prompt: bool
    ) -> None: ...


class CardTier(Protocol):
    """What an executor reads of its device's tier; arrays may change between windows, with their versions.

    residency        slot_of int32 [layers, E] of the whole model, version int32 [1]
    sources          int64 [layers, E, 3]: where kernels read an expert's gate, up and down, 0 where they may not
    share            256ths of the missed experts that go over PCIe
    served           int64 [2, 3]: entries of decoded windows and of prompts by cache, PCIe, pool
    reach, pool, prompt_pool   clocks: waiting for the card and for the pool in windows that decode, for the pool in others
    """

    memory: CardExpertMemory
    residency: Any
    sources: np.ndarray
    sources_version: int
    share: int
    served: np.ndarray
    jobs: Jobs
    reach: Any
    pool: Any
    prompt_pool: Any


@kernel
def await_message(headers, place, last, step, wait_ns):
    """Return the first layer from `place` on whose message of a step asks for jobs, `last` where none does; -1 - the layer that said
    nothing for wait_ns."""
    until = clock_ns() + wait_ns
    while place < last:
        if not has_message(headers, place * FIELDS, step, until):
            return -1 - place
        if load_flag(headers, place * FIELDS + FLAG) & 1:
            return place
        place += 1
    return place


@kernel
def answer(flags, i, value):
    """Publish a flag behind all that this thread wrote."""
    store_flag(flags, i, value)


class Meetings:
    """The meetings of the stage with `layers`, in windows that run one at a time."""

    def __init__(self, device: CudaDevice, config: ModelConfig, layers: Sequence[int], tier: CardTier, work: Workspace, purpose: str) -> None:
        self.device, self.config, self.layers, self.tier, self.work = device, config, tuple(layers), tier, work
        self.mailbox = Mailbox(device, config, len(self.layers), purpose)
        self.tables = TierTables(device, purpose, self.layers, config.n_experts)
        self.patience_ns, self.step = PATIENCE_NS, 0
        self._served, self._spent = np.empty(PLACES * config.n_used, np.int32), np.zeros(2, np.int64)
        self._is_open = False

    def recorder(self, layer: int, work: Workspace, n_rows: int, add: Callable) -> TierRecorder:
        """Return what lists a layer's launches, on buffers of `work`; programs recorded before a wider window came hold old addresses."""
        if self.mailbox.areas(n_rows) is None:
            self.device.synchronise()
            self.mailbox.grow(n_rows)
            self.work.generation += 1
        return TierRecorder(self, layer, work, n_rows, add)

    # ---- one window

    def begin(self) -> None:
        """Send what changed of the tables; the next launches are a window's."""
        self.tables.refresh(self.tier)
        self.step, self._is_open = (self.step + 1) & STEP_MASK, True

    def replay(self, graphs: GraphTable, key: tuple, launches: Sequence[Launch], window: Window) -> None:
        """Replay a window's graph and serve it; in the simulator, where nothing runs beside this thread, send its launches."""
        if SIMULATED:
            self.sender(window)(launches)
            return
        with self.device.keeping_memory():
            graphs.run(key, launches)
            self._serve(0, len(self.layers), window)

    def sender(self, window: Window) -> Callable[[Sequence[Launch]], None]:
        """Return what sends launches one by one and serves each layer ahead of the launch that waits for it."""
        return lambda launches: send_served(launches, lambda place: self._serve(place, place + 1, window))

    def end(self, window: Window, routed: np.ndarray | None) -> None:
        """Take note of a window whose stream has ended; raises DeviceError where a kernel gave up."""
        self._require_running()
        self._is_open = False
        layers = len(self.layers)
        headers = self.mailbox.headers.host.reshape(layers, FIELDS)
        self.tier.served[int(window.is_prompt)] += headers[:, [CACHED_ENTRIES, FETCHED_ENTRIES, JOB_ENTRIES]].sum(axis=0)
        if routed is not None:
            count_window(self.mailbox.areas(window.n_rows).log, window, self.config, self.layers, routed)

    def abort(self) -> None:
        """End a window that failed: kernels wait no more, and all steps start again once the stream is idle."""
        if not self._is_open:
            return
        self._is_open = False
        answer(self.mailbox.stop.host, 0, ABORTED)
        self.device.synchronise()
        self.mailbox.reset()
        self.step = 0

    # ---- serving

    def _serve(self, first: int, last: int, window: Window) -> None:
        """Serve the messages of layers first .. last - 1, counted in the stage, in order."""
        if self.device.is_blueprint:
            return
        for place in range(first, last):
            jobs = self._compiled(place, window)
            if jobs is not None:
                self._serve_compiled(place, jobs, window)
            elif self._await(place, place + 1, window.is_prompt) == place:
                self._compute(place, window.is_prompt)

    def _compiled(self, place: int, window: Window):
        """Return a layer's compiled jobs, None where they are called."""
        if window.is_prompt or window.n_rows > PLACES:
            return None
        return self.tier.jobs.compiled(self.layers[place], window.n_rows, window.n_rows * self.config.n_used)

    def _serve_compiled(self, place: int, jobs, window: Window) -> None:
        """Serve a layer without Python between its message and the answer."""
        tier, box, areas, spent = self.tier, self.mailbox, self.mailbox.areas(window.n_rows), self._spent
        lists = areas.job_experts.host, areas.job_starts.host, areas.job_rows.host, areas.values.host, areas.outputs.host
        scratch = jobs.control, jobs.addresses, jobs.lines, jobs.spans, jobs.pages, jobs.room
        serve, n = server(jobs.run), SILENT
        spent[:] = 0
        tier.pool.begin()
        while n == SILENT:
            was_idle = self._is_idle_already()
            n = serve(place, self.step, SLICE_NS, box.headers.host, box.stop.host, box.done.host, *lists, self.config.hidden, *scratch, self._served, spent)
            if n == SILENT:
                self._require_message(place, was_idle)
        if n == STOPPED:
            self._require_running()
        tier.reach.add(1e-9 * spent[WAITED])
        tier.pool.add(1e-9 * spent[COMPUTED])
        if n:
            tier.jobs.served(self.layers[place], self._served[:n])

    def _await(self, at: int, last: int, is_prompt: bool) -> int:
        """Return the next layer with jobs; raises DeviceError where none will come."""
        while True:
            was_idle = self._is_idle_already()
            with nullcontext() if is_prompt else self.tier.reach:
                found = await_message(self.mailbox.headers.host, at, last, self.step, SLICE_NS)
            if found >= 0:
                return found
            at = -1 - found
            self._require_message(at, was_idle)

    def _is_idle_already(self) -> bool:
        """Whether nothing that runs could still write a message: launches of the simulator have run when they are sent."""
        return self.device.is_idle() if SIMULATED else False

    def _require_message(self, at: int, was_idle: bool) -> None:
        """Raise DeviceError where a layer said nothing and an idle stream has left its message unwritten."""
        if was_idle or self.device.is_idle() and self.mailbox.header(at)[FLAG] >> 1 != self.step:
            raise DeviceError(f"layer {self.layers[at]} on {self.device.name}", "its window ended without a message", "report this with the command that led here")

    def _compute(self, place: int, is_prompt: bool) -> None:
        """Have a layer's jobs computed, and answer.

        The lists are copied first: a kernel that gives up meanwhile lets the next layer write there, and jobs trust what lists say.
        """
        header = self.mailbox.header(place).tolist()
        *lists, values, outputs = self.mailbox.jobs(header[N_ROWS], header[N_JOBS], header[JOB_ENTRIES])
        own = [part.copy() for part in lists]
        self._require_running()
        with self.tier.prompt_pool if is_prompt else self.tier.pool:
            self.tier.jobs.compute(self.layers[place], *own, values, outputs, is_prompt)
        answer(self.mailbox.done.host, place, self.step)

    def _require_running(self) -> None:
        if int(self.mailbox.stop.host[0]) != RUNNING:
            raise DeviceError(
                f"the experts of a window on {self.device.name}", f"a kernel waited {self.patience_ns // 10**9} s for the CPU pool and gave up",
                "give the pool more threads, or the device a larger expert cache",
            )
