"""The CUDA executor: one stage's layers and sessions on a card, windows replayed as graphs.

`run_window` looks up the program of a window's shape (rows, logit rows, class of the context, whether rows are kept); where
there is none the window pass is recorded.  Windows of up to eight rows are captured as graphs, wider ones are sent launch
by launch.  What changes from window to window (tokens, slots, positions, segments) is sent in one copy.  Rows come from and
go to other stages through pinned memory.  A window that is not kept holds a lane until it is committed.  Prompt chunks lie in
`chunk_buffers` where some are given, which may be others for each of them.  While an observer watches points, a window is recorded with taps (`taps.py`) and run without a graph (`observed.py`).
Does not know: other stages, drafts.
"""

import numpy as np

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.graphs import GraphTable
from strata.cuda.card.launch import BUILDING, Launch, send
from strata.cuda.delta_net.scan import launch_commit
from strata.cuda.memory.cell_classes import class_of
from strata.cuda.memory.chunk_buffers import CardChunkBuffers, ChunkWorkspace
from strata.cuda.memory.host_rows import HostRows
from strata.cuda.memory.placed import CardStage
from strata.cuda.memory.workspace import PLACES, Lane, Workspace
from strata.cuda.residual.ngrams import launch_keep
from strata.cuda.stage.lanes import LaneTable
from strata.cuda.stage.observed import run_observed, show
from strata.cuda.stage.programs import Program, ProgramTable
from strata.cuda.stage.recorder import Recorder
from strata.cuda.stage.sessions import Sessions
from strata.cuda.stage.state_taps import StateTaps
from strata.cuda.stage.taps import NO_TAPS, TOP, CardTaps, NoTaps, needs_taps
from strata.cuda.tier.meeting import Meetings
from strata.cuda.tier.routing_log import RoutingLog
from strata.errors import DeviceError
from strata.model.config import ModelConfig
from strata.numerics.rotary import rotary_table
from strata.numerics.rounding import RoundingMode
from strata.rows import Place, Window

FIRST_RUNS = "what kernels and graphs take when they first run"
"""The purpose to which the driver's own memory is accounted (local memory, code that it loads late)."""


class CudaExecutor:
    """A stage on a card; see `strata.windows.contract.Executor`."""

    replays = True

    def __init__(
        self, device: CudaDevice, config: ModelConfig, placed: CardStage, mode: RoundingMode, kv: str, n_slots: int, context: int
    ) -> None:
        if mode.name != "canonical":
            raise DeviceError(f"rounding={mode.name} on {device.name}", "cards compute the canonical contract only", "use host devices for other modes")
        self.device, self.config, self.placed, self.kv = device, config, placed, kv
        self.n_slots, self.context = n_slots, context
        self.observe, self.watched = None, frozenset()
        self.meetings: Meetings | RoutingLog | None = None
        self._routed: np.ndarray | None = None
        self._purpose = f"sessions of {placed.name}"
        layers = tuple(layer.index for layer in placed.layers)
        self.sessions = Sessions(device, config, layers, self._purpose, kv, n_slots, context)
        self._tables = f"tables of {placed.name}"
        self.table = device.upload(self._tables, rotary_table(config.rope_base, config.rope_dims, context).reshape(-1))
        self.work = Workspace(device, f"buffers of {placed.name}")
        self.chunk_buffers: CardChunkBuffers | None = None
        self._chunk_work: ChunkWorkspace | None = None
        self.graphs = GraphTable(device)
        self.programs = ProgramTable(self.graphs)
        self.lanes = LaneTable(device, self._tables, self.programs.forget_lane)
        self._pending: dict[Window, Lane] = {}
        self._pinned: dict[str, np.ndarray] = {}
        self._outgoing = HostRows(device)
        self._unsent: Program | None = None
        self.last_residual = None

    @property
    def tier(self):
        """Where the experts of the stage's layers lie (`strata.cuda.tier.meeting.CardTier`); None: all in the stage's own memory.

        Set it before `routed` and before the first window.
        """
        return None if self.meetings is None else self.meetings.tier

    @tier.setter
    def tier(self, tier) -> None:
        self.device.attach()
        self.meetings = Meetings(self.device, self.config, [layer.index for layer in self.placed.layers], tier, self.work, self._tables)

    @property
    def routed(self) -> np.ndarray | None:
        """Counts of routed entries, int32 [2, layers, experts] (decoded, read), where somebody wants them."""
        return self._routed

    @routed.setter
    def routed(self, counts: np.ndarray) -> None:
        self.device.attach()
        self._routed = counts
        if self.meetings is None:
            self.meetings = RoutingLog(self.device, self.config, [layer.index for layer in self.placed.layers], self.work)

    # ---- windows

    def run_window(self, window: Window, residual: np.ndarray | None, blocks) -> np.ndarray:
        """Run a window; `blocks(recorder, residual)` is the window pass.  Returns logits, or the residual to hand off."""
        with self.device.lock:
            self.device.attach()
            return self._run_window(window, residual, blocks)

    def record(self, window: Window, is_first: bool, blocks, taps: CardTaps | None = None) -> tuple[Launch, ...]:
        """Return the launches of a window, with `taps` an observed one, and of its commit, without sending any: for a device that is a blueprint."""
        lane = self.lanes.take(window)
        key = self._key(window, lane, is_first)
        program = self._program(key, lane, is_first, blocks) if taps is None else self._record(key, lane, is_first, blocks, taps)
        launches = program.launches
        if not window.keep:
            launches += tuple(self._commit_launches(lane))
        self.lanes.release(lane)
        return launches

    def _run_window(self, window: Window, residual: np.ndarray | None, blocks) -> np.ndarray:
        lane = self.lanes.take(window)
        try:
            return self._run_in(lane, window, residual, blocks)
        except BaseException:
            if self.meetings is not None:
                self.meetings.abort()
            if window not in self._pending:
                self.lanes.release(lane)
            raise

    def _run_in(self, lane: Lane, window: Window, residual: np.ndarray | None, blocks) -> np.ndarray:
        lane.fill(self.device, window)
        key = self._key(window, lane, residual is None)
        n_logits = key[3]
        taps = CardTaps(self.watched) if needs_taps(self.observe, self.watched) else None
        program = self._program(key, lane, residual is None, blocks) if taps is None else self._record(key, lane, residual is None, blocks, taps)
        self.last_residual = program.residual
        if residual is not None:
            self._send("incoming", residual, program.residual)
        if not window.keep:
            self._pending[window] = lane
        if self.meetings is not None:
            self.meetings.begin()
        if taps is not None:
            run_observed(self.device, self.observe, program.launches, program.taps, window, self._sender(window))
        elif program is self._unsent:
            self._unsent = None
            with self.device.measured(FIRST_RUNS):
                self._run(key, program, window)
                self.device.synchronise()
        else:
            self._run(key, program, window)
        result = self._fetch(program, window, n_logits)
        if self.meetings is not None:
            self.meetings.end(window, self._routed)
        if n_logits and self.observe is not None and "logits" in self.watched:
            self.observe(window, "logits", TOP, result, Place(rows=window.logit_rows))
        if window.keep:
            self.lanes.release(lane)
        return result

    def _key(self, window: Window, lane: Lane, is_first: bool) -> tuple:
        n_logits = len(window.logit_rows) if self.placed.output is not None else 0
        most_cells = min(self.context, class_of(int(window.positions.max()) + 1))
        return lane.number, window.n_rows, lane.n_segments, n_logits, window.keep, most_cells, is_first

    def prepare(self, window: Window, blocks) -> Program:
        """Return the program that a window of the first stage would run, its tables filled; nothing is sent.  For measurements."""
        with self.device.lock:
            self.device.attach()
            lane = self.lanes.take(window)
            lane.fill(self.device, window)
            program = self._program(self._key(window, lane, True), lane, True, blocks)
            self.device.synchronise()
            self.lanes.release(lane)
            return program

    def _run(self, key: tuple, program: Program, window: Window) -> None:
        """Replay a program's graph, or send a prompt chunk's launches."""
        if key[1] > PLACES:
            self._sender(window)(program.launches)
        elif self.meetings is None:
            self.graphs.run(key, program.launches)
        else:
            self.meetings.replay(self.graphs, key, program.launches, window)

    def _sender(self, window: Window):
        """Return what sends a window's launches."""
        return send if self.meetings is None else self.meetings.sender(window)

    def _program(self, key: tuple, lane: Lane, is_first: bool, blocks) -> Program:
        program = self.programs.find(key, self.work_for(key[1]))
        if program is None:
            program = self._unsent = self._record(key, lane, is_first, blocks, NO_TAPS)
            self.programs.keep(key, program, (self.work, self._chunk_work))
        return program

    def work_for(self, n_rows: int) -> Workspace:
        """Return the workspace of windows of n_rows: the stage's own, of a prompt chunk the one over the buffers that are given."""
        buffers = self.chunk_buffers
        if buffers is None or n_rows <= PLACES:
            return self.work
        if self._chunk_work is None or self._chunk_work.region.key != buffers.key:
            self._chunk_work = ChunkWorkspace(self.work, buffers)
        return self._chunk_work

    def _record(self, key: tuple, lane: Lane, is_first: bool, blocks, taps: NoTaps) -> Program:
        """Record a window's launches, and the taps that `taps` wants."""
        _, n_rows, _, n_logits, keep, most_cells, _ = key
        work = self.work_for(n_rows)
        with BUILDING:
            while True:
                before = work.generation
                recorder = Recorder(self, lane, n_logits, keep, most_cells, taps)
                blocks(recorder, None if is_first else recorder.residual)
                recorder.flush()
                if work.generation == before:
                    break
        return Program(tuple(recorder.launches), recorder.residual, recorder.logits, before, taps.taken, work)

    def _send(self, name: str, values: np.ndarray, target) -> None:
        flat = values.reshape(-1)
        staged = self._staging(name, flat.size)
        staged[:] = flat
        target[: flat.size].copy_to_device(staged, stream=self.device.stream)

    def _staging(self, name: str, n: int) -> np.ndarray:
        held = self._pinned.get(name)
        if held is None or held.size < n:
            self._pinned[name] = held = self.device.pinned(n, np.float32)
        return held[:n]

    def _fetch(self, program: Program, window: Window, n_logits: int) -> np.ndarray:
        c = self.config
        source, shape = program.residual, (window.n_rows, c.n_streams, c.hidden)
        if self.placed.output is not None:
            source, shape = program.logits, (n_logits, c.vocabulary)
        n = int(np.prod(shape))
        if not n:
            self.device.synchronise()
            return np.empty(shape, np.float32)
        fetched = self._outgoing.take(n)
        source[:n].copy_to_host(fetched, stream=self.device.stream)
        self.device.synchronise()
        return fetched.reshape(shape)

    def commit(self, window: Window, kept: np.ndarray) -> None:
        """Keep the first kept[s] rows of each segment of a window that was run without `keep`."""
        with self.device.lock:
            self.device.attach()
            lane = self._pending.pop(window)
            lane.fill_kept(self.device, kept)
            with BUILDING:
                launches = self._commit_launches(lane)
            send(launches)
            self.device.synchronise()
            self._show_committed(window, kept)
            self.lanes.release(lane)

    def _show_committed(self, window: Window, kept: np.ndarray) -> None:
        """Show the state that a commit stored."""
        if not needs_taps(self.observe, self.watched):
            return
        taps, s = CardTaps(self.watched), self.sessions
        state = StateTaps(taps, s, self.config, self.kv)
        for layer in s.gdn_layers:
            state.memory("stored", layer)
            state.gdn_tail("stored", layer)
        for placed in self.placed.layers:
            if placed.ngrams is not None:
                state.ngram_tail("stored", placed.index)
                state.history("stored", placed.index)
        for tap in taps.taken:
            show(self.device, self.observe, tap, window, kept)

    def _commit_launches(self, lane: Lane) -> list[Launch]:
        c, s, n, device = self.config, self.sessions, lane.n_rows, self.device
        launches = []
        n_layers = len(s.gdn_layers)

        def held(name: str, n_values: int):
            return self.work.get(f"{name} of lane {lane.number} with {n} rows", max(1, n_layers) * n * n_values)

        if n_layers:
            inputs = (held("gdn w", c.ssm_channels), held("gdn g", c.n_ssm_v_heads), held("gdn beta", c.n_ssm_v_heads), held("gdn u", c.ssm_channels))
            launches.append(launch_commit(device, c, lane.tables, lane.kept, *inputs, s.memory, s.tail, s.n_slots, n_layers, n))
        if s.history is not None:
            conv_rows = held("ngram conv rows", c.residual_width)
            launches.append(launch_keep(device, c, lane.tables, lane.kept, conv_rows, s.ngram_tail, s.history))
        return launches

    def abandon(self, window: Window) -> None:
        """Drop what a failed window left behind."""
        lane = self._pending.pop(window, None)
        if lane is not None:
            self.lanes.release(lane)

    def clear(self, slot: int) -> None:
        """Start a new session in a slot."""
        with self.device.lock:
            self.device.attach()
            self.sessions.clear(slot)

    def poison(self, slot: int, from_position: int) -> None:
        """Fill a slot's cells from a position on with NaN, to prove that nothing reads them."""
        with self.device.lock:
            self.device.attach()
            self.sessions.poison(slot, from_position)

    def copy_slot(self, source: int, target: int) -> None:
        """Copy a session from one slot to another."""
        with self.device.lock:
            self.device.attach()
            self.sessions.copy_slot(source, target)

    def close(self) -> None:
        """Free graphs, sessions and buffers; the weights stay with whoever placed them."""
        with self.device.lock:
            self.device.attach()
            self.programs.clear()
            self._unsent = self.last_residual = self.meetings = self.chunk_buffers = self._chunk_work = None
            self.lanes.clear()
            self._pending.clear()
            self._pinned.clear()
            self._outgoing.close()
            self.work.close()
            self.sessions = self.table = None
            for purpose in (self._purpose, self._tables):
                self.device.give_back(purpose)
