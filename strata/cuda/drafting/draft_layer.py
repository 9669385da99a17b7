"""The draft layer on the card of the last stage: see `strata.windows.contract.DraftLayer`.

The bits of `strata.host.drafts`: cells, tokens, probabilities, logits.  A window's residual rows are copied on the card when they
are held, and stay there until their cells are made.  Both steps are recorded once per shape (rows; class of the cells; chained
or not) and replayed as graphs up to eight rows; what changes goes to the card in one copy, and a proposal comes back in one.
Which positions a slot has and how far its chain goes is counted here, as the host's layer does.  Whoever sends holds the
device's lock.  Does not know: what a proposal is worth, which windows are verified.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.graphs import GraphTable
from strata.cuda.card.launch import BUILDING, Launch, send
from strata.cuda.drafting.draft_cells import PURPOSE as CELLS
from strata.cuda.drafting.draft_cells import DraftCells
from strata.cuda.drafting.held_rows import HeldRows
from strata.cuda.drafting.placed_drafts import PURPOSE as WEIGHTS
from strata.cuda.drafting.placed_drafts import CardDrafts
from strata.cuda.drafting.record_drafts import PARTS, DraftRecorder, DraftTables, tables_of
from strata.cuda.memory.cell_classes import class_of
from strata.cuda.memory.workspace import PLACES, Workspace
from strata.errors import DeviceError
from strata.model.config import ModelConfig
from strata.rows import KeptRows, Window, WindowCosts

COSTS = WindowCosts(row=0.18, draft=0.27)
"""Measured on an H200 with the shipped model (`strata bench drafts --costs --devices cuda:0 --context 512`): a window of one row takes
1.01 ms, of eight 1.98 ms, a step 0.27 ms.  They choose how wide windows are, never what is answered."""
BUFFERS, HELD = "draft buffers", "draft rows held"


@dataclass(frozen=True, slots=True, eq=False)
class CardProposals:
    """One draft per asked slot: tokens int32 [n], their probabilities float32 [n]; `logits` are fetched when asked for."""

    tokens: np.ndarray
    probabilities: np.ndarray
    fetch: Callable[[], np.ndarray]

    @property
    def logits(self) -> np.ndarray:
        """float32 [n, draft ids], kept once fetched; DeviceError where the layer has proposed again before."""
        return self.fetch()


@dataclass(frozen=True, slots=True, eq=False)
class DraftProgram:
    """The launches of one step, its index arrays, its results [2 n] and logits on the card."""

    launches: tuple[Launch, ...]
    tables: DraftTables
    results: object
    logits: object
    generation: tuple[int, int]


class CudaDrafts:
    """The draft layer of one card, for all its slots; `table` is the stage's rotary table."""

    costs = COSTS
    replays = True
    meetings = None

    def __init__(self, device: CudaDevice, config: ModelConfig, placed: CardDrafts, kv: str, n_slots: int, context: int, table) -> None:
        self.device, self.config, self.placed, self.kv, self.table = device, config, placed, kv, table
        self.layer, self.context, self.sessions = config.n_layers, context, None
        self.cells = DraftCells(device, config, kv, n_slots, context)
        self.held = HeldRows(device, HELD, config.residual_width, n_slots * context)
        self.work, self.graphs = Workspace(device, BUFFERS), GraphTable(device)
        self._programs: dict[tuple, DraftProgram] = {}
        self._staged: dict[str, np.ndarray] = {}
        self._runs: dict[Window, int] = {}
        self._counts, self._chained = np.zeros(n_slots, np.int32), np.zeros(n_slots, np.int32)
        self._position = np.full(n_slots, -1, np.int32)
        self._is_building, self._n_proposals = False, 0

    @property
    def cell_bytes_per_slot(self) -> int:
        """Bytes of one slot's cells: what a slot's drafter has of its own."""
        return self.cells.bytes_per_slot

    @property
    def token_ids(self) -> np.ndarray:
        """The draft vocabulary, ascending."""
        return self.placed.token_ids

    # ---- cells

    def hold(self, window: Window, residual) -> None:
        """Copy a window's final residual rows [rows, C, H] on the card and keep them until `build` or `forget`."""
        with self.device.lock:
            self.device.attach()
            self._runs[window] = self.held.keep(residual, window.n_rows)

    def forget(self, window: Window) -> None:
        """Drop the rows of a window whose cells are not wanted."""
        with self.device.lock:
            first = self._runs.pop(window, None)
            if first is not None:
                self.held.release(first)

    def build(self, parts: Sequence[KeptRows]) -> None:
        """Make the cells of windows' kept rows; a slot's windows come in order.  The windows' rows are no longer held."""
        with self.device.lock:
            self.device.attach()
            rows = [row for part in parts for row in self._kept(part)]
            if rows:
                self._make(np.array(rows, np.int32).T)
            for part in parts:
                self.forget(part.window)

    def _kept(self, part: KeptRows) -> list[tuple[int, int, int, int, int]]:
        """Count a window's kept rows; return (token behind, slot, position, cells with it, row held) of each."""
        first, rows = self._runs[part.window], []
        for s, (segment, n, tokens) in enumerate(zip(part.window.segments, part.kept, part.next_tokens, strict=True)):
            slot, at = segment.slot, first + int(part.window.first[s])
            for i in range(int(n)):
                self._counts[slot] += 1
                rows.append((tokens[i], slot, segment.start + i, int(self._counts[slot]), at + i))
        return rows

    def _make(self, parts: np.ndarray) -> None:
        """Send the step that makes cells of rows, int32 [5, rows]."""
        slots, positions = parts[1], parts[2]
        newest = np.full(len(slots), -1, np.int32)
        for slot, row in {int(slot): row for row, slot in enumerate(slots)}.items():
            newest[row], self._position[slot], self._chained[slot] = slot, positions[row], 0
        key = ("build", len(slots))
        program = self._program(key, lambda recorder: recorder.build(self.held.array))
        if self._is_building:
            self.device.synchronise()  # the staged index arrays of the cells before may still be on their way
        self._fill(program, "build", (*parts, newest))
        self._is_building = True
        self._send(key, program)

    def clear(self, slot: int) -> None:
        """Start a new session in a slot; rows of it that are still held are of the old one."""
        with self.device.lock:
            for window in list(self._runs):
                if slot in window.segment_slot:
                    self.forget(window)
            self._counts[slot], self._position[slot], self._chained[slot] = 0, -1, 0

    def copy_slot(self, source: int, target: int) -> None:
        """Copy a session's cells and newest streams from one slot to another."""
        with self.device.lock:
            self.device.attach()
            self.cells.copy_slot(source, target)
            for array in (self._counts, self._position, self._chained):
                array[target] = array[source]

    def has_tip(self, slot: int, position: int) -> bool:
        """Whether a slot's newest cell is the one at `position`: proposals then continue the text."""
        return int(self._position[slot]) - int(self._chained[slot]) == position

    def poison(self, slot: int, from_position: int) -> None:
        """Fill a slot's cells from a position on with NaN, to prove that nothing reads them."""
        with self.device.lock:
            self.device.attach()
            self.cells.poison(slot, from_position)

    def close(self) -> None:
        """Free graphs, and give back what was taken by a name of its own."""
        self.device.attach()
        self.graphs.clear()
        self._programs.clear()
        self.held.close()
        for purpose in (CELLS, WEIGHTS):
            self.device.give_back(purpose)

    # ---- proposals

    def propose(self, slots: Sequence[int], tokens: Sequence[int] | None = None) -> CardProposals:
        """Guess one token per slot: from the newest cells, or behind the drafts `tokens` that the call before gave.

        Raises DeviceError for a slot without cells, and for a chain past the context's end.
        """
        with self.device.lock:
            self.device.attach()
            chosen = np.array(slots, np.int32)
            is_chained = tokens is not None
            positions, chained = self._position[chosen] + is_chained, self._chained[chosen] + is_chained
            self._check(chosen, positions)
            counts = self._counts[chosen] + chained
            key = ("propose", len(chosen), is_chained, min(self.context, class_of(int(counts.max()))))
            program = self._program(key, lambda recorder: recorder.propose(is_chained))
            self._position[chosen], self._chained[chosen] = positions, chained
            given = np.array(tokens if is_chained else np.zeros(len(chosen)), np.int32)
            self._fill(program, "propose", (given, chosen, positions, counts, chosen, chosen))
            self._send(key, program)
            return self._fetched(program, len(chosen))

    def _check(self, slots: np.ndarray, positions: np.ndarray) -> None:
        for slot, position in zip(slots, positions, strict=True):
            if self._counts[slot] == 0:
                raise DeviceError(f"a proposal for slot {slot}", "the draft layer has no cell of it", "build its cells first")
            if position >= self.context:
                raise DeviceError(f"a draft at position {position} of slot {slot}", f"the context ends at {self.context}", "draft less far")

    def _fetched(self, program: DraftProgram, n: int) -> CardProposals:
        """Fetch indices and probabilities in one copy."""
        staged = self._staging("results", 2 * n)
        program.results.copy_to_host(staged, stream=self.device.stream)
        self.device.synchronise()
        self._is_building = False
        self._n_proposals += 1
        number = self._n_proposals
        best, probabilities = staged[:n].copy(), staged[n:].copy().view(np.float32)
        return CardProposals(self.token_ids[best], probabilities, cache(partial(self._logits, program, n, number)))

    def _logits(self, program: DraftProgram, n: int, number: int) -> np.ndarray:
        with self.device.lock:
            self.device.attach()
            if number != self._n_proposals:
                raise DeviceError("the logits of a proposal", "the draft layer has proposed again", "read them before the next call")
            n_ids = len(self.token_ids)
            values = np.empty(n * n_ids, np.float32)
            program.logits[: n * n_ids].copy_to_host(values, stream=self.device.stream)
            self.device.synchronise()
            return values.reshape(n, n_ids)

    # ---- programs

    def work_for(self, n_rows: int) -> Workspace:
        """Return the workspace of a step of n_rows, as the recorder asks of whoever it records for: the layer has one for all."""
        return self.work

    @property
    def _generation(self) -> tuple[int, int]:
        return self.work.generation, self.held.generation

    def _program(self, key: tuple, record: Callable[[DraftRecorder], None]) -> DraftProgram:
        """Return the program of a step, recorded where there is none or a buffer has moved."""
        program = self._programs.get(key)
        if program is not None and program.generation == self._generation:
            return program
        kind, n, *rest = key
        with BUILDING:
            while True:
                before = self._generation
                block = self.work.get(f"{kind} tables", PARTS * max(n, PLACES), np.int32)
                recorder = DraftRecorder(self, tables_of(block, n), rest[-1] if rest else 0)
                record(recorder)
                if self._generation == before:
                    break
        program = DraftProgram(tuple(recorder.launches), recorder.lane, recorder.results, recorder.logits, before)
        if n <= PLACES:
            self._programs[key] = program
        return program

    def record_build(self, n_rows: int) -> None:
        """Record the step that makes cells of n_rows, without sending it: for a device that is a blueprint."""
        self._program(("build", n_rows), lambda recorder: recorder.build(self.held.array))

    def record_proposal(self, n_rows: int, most_cells: int) -> None:
        """Record proposals for n_rows slots of up to most_cells, the first of a chain and another, without sending them."""
        for is_chained in (False, True):
            self._program(("propose", n_rows, is_chained, most_cells), lambda recorder, chained=is_chained: recorder.propose(chained))

    def _fill(self, program: DraftProgram, name: str, parts: Sequence[np.ndarray]) -> None:
        """Send a step's index arrays in one copy; the last one is the rows' numbers."""
        n = program.tables.n_rows
        staged = self._staging(name, PARTS * n)
        for i, part in enumerate((*parts, np.arange(n))):
            staged[i * n : (i + 1) * n] = part
        program.tables.block.copy_to_device(staged, stream=self.device.stream)

    def _send(self, key: tuple, program: DraftProgram) -> None:
        if program.tables.n_rows <= PLACES:
            self.graphs.run(key, program.launches)
        else:
            send(program.launches)

    def _staging(self, name: str, n: int) -> np.ndarray:
        held = self._staged.get(name)
        if held is None or held.size < n:
            self._staged[name] = held = self.device.pinned(max(n, PARTS * PLACES), np.int32)
        return held[:n]
