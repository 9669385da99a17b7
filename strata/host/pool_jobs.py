"""The CPU pool's side of a card's expert tier: the experts that no card computes, one job each, all of a layer in one call.

`compute` takes rows as the router saw them, codes them itself, and leaves each entry's output in its line: the bits that the host
executor computes.  `compiled` gives what does the same without Python, for compiled code that serves a card.  Experts are read where the arena has them; what does not change from call to call is prepared once for a layer.
One thread calls it.
Does not know: cards, windows, why an expert is not on a card.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np

from strata.cpu_pool.arena import COPIES, FILE
from strata.cpu_pool.expert_addresses import ExpertAddresses
from strata.cpu_pool.expert_jobs import expert_jobs, room_bytes
from strata.cpu_pool.instruction_sets import PLAIN, instruction_set
from strata.cpu_pool.pages import buffer_words
from strata.cpu_pool.team import Team
from strata.errors import PoolJobError
from strata.formats.contract import GROUP
from strata.host.expert_parts import over_bank
from strata.host.experts import activate
from strata.host.matrix import Activations, Entries, Matrix
from strata.host.placed import PlacedMoe

SPAN = 32
FEWEST = 16
"""Rows and entries that there is room for from the start."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerJobs:
    """A layer's kernel (None: matrix by matrix), where its experts lie and which of them are copies (`ExpertAddresses.of`), groups of a row and of a hidden row."""

    run: Callable | None
    addresses: np.ndarray
    copied: np.ndarray
    n_groups_in: int
    n_groups_hidden: int


@dataclass(frozen=True, slots=True, eq=False)
class CompiledJobs:
    """A layer's kernel with what does not change from call to call: run(control, addresses, experts, starts, rows, lines, values, spans, out, pages, room)."""

    run: Callable
    control: np.ndarray
    addresses: np.ndarray
    lines: np.ndarray
    spans: np.ndarray
    pages: np.ndarray
    room: np.ndarray


class PoolJobs:
    """Jobs over the experts of `layers` in an arena, on a team's threads.

    `blobs` counts the experts that were read from each of the arena's banks; whoever calls keeps the time.
    """

    def __init__(self, layers: Mapping[int, PlacedMoe], arena, team: Team, blobs: Counter) -> None:
        self.layers, self.arena, self.team, self.blobs = layers, arena, team, blobs
        self._addresses, self._prepared = ExpertAddresses(arena), {}
        self._lines = self._spans = self._pages = np.empty(0, np.int32)
        self._room, self._sizes = np.empty(0, np.uint8), set()
        self._change: Callable[[Matrix], Matrix] | None = None
        self._is_called = False

    def use_arena(self, arena) -> None:
        """Read experts from another arena from now on."""
        self.arena, self._addresses = arena, ExpertAddresses(arena)
        self._prepared.clear()

    def renew(self, layer: int, *experts: int) -> None:
        """Experts have moved in the arena."""
        self._addresses.renew(layer, experts)

    def use_products(self, change: Callable[[Matrix], Matrix]) -> None:
        """Compute matrix by matrix from now on, with the products of what `change` makes of each."""
        self._change = change
        self._prepared.clear()

    def use_calls(self) -> None:
        """Compute by `compute` only from now on, which somebody may have wrapped."""
        self._is_called = True

    def compiled(self, layer: int, n_rows: int, n_entries: int) -> CompiledJobs | None:
        """Return what computes jobs of a layer with up to so many rows and entries, until the next call; None where only `compute` does.

        Whoever runs it says so by `served`.  Raises PoolJobError where the layer cannot be prepared.
        """
        if self._is_called:
            return None
        try:
            job = self._prepared.get(layer) or self._prepare(layer)
        except Exception as error:
            raise PoolJobError(layer, error) from error
        if job.run is None:
            return None
        self._make_room(job, min(n_entries, len(job.addresses)), n_rows, n_entries)
        return CompiledJobs(job.run, self.team.control, job.addresses, self._lines, self._spans, self._pages, self._room)

    def served(self, layer: int, experts: np.ndarray) -> None:
        """Count experts int32 [n] of a layer that were read."""
        n_copied = np.count_nonzero(self._prepared[layer].copied[experts])
        self.blobs[COPIES] += n_copied
        self.blobs[FILE] += len(experts) - n_copied

    def compute(
        self, layer: int, experts: np.ndarray, starts: np.ndarray, rows: np.ndarray, values: np.ndarray, out: np.ndarray, is_prompt: bool
    ) -> None:
        """Fill out float32 [entries, H]; experts int32 [n >= 1], starts int32 [n + 1] from 0, rows int32 [entries], values float32 [rows, H].

        Raises PoolJobError where a job fails.
        """
        try:
            job = self._prepared.get(layer) or self._prepare(layer)
            self._make_room(job, len(experts), len(values), len(rows))
            if job.run is None:
                self._bank_by_bank(layer, experts, starts, rows, values, out)
            else:
                job.run(self.team.control, job.addresses, experts, starts, rows, self._lines, values, self._spans, out, self._pages, self._room)
        except Exception as error:
            raise PoolJobError(layer, error) from error
        self.served(layer, experts)

    def _prepare(self, layer: int) -> LayerJobs:
        placed, instructions, run = self.layers[layer], instruction_set(), None
        n_in, n_hidden = placed.gate.n_in // GROUP, placed.gate.n_out // GROUP
        addresses, copied = self._addresses.of(layer)
        if instructions != PLAIN and self._change is None:
            run = expert_jobs((placed.gate.type_id, placed.up.type_id, placed.down.type_id), n_in, n_hidden, instructions)
        self._prepared[layer] = LayerJobs(run, addresses, copied, n_in, n_hidden)
        return self._prepared[layer]

    def _make_room(self, job: LayerJobs, n_experts: int, n_rows: int, n_entries: int) -> None:
        """Have scratch for so many experts, rows and entries, which is looked at once for each such size."""
        size = job.n_groups_in, job.n_groups_hidden, n_experts, n_rows, n_entries
        if size in self._sizes:
            return
        most, pages = max(n_rows, n_entries, FEWEST), buffer_words(n_rows, job.n_groups_in)
        if len(self._spans) < most:
            self._spans, self._lines = np.full(most, SPAN, np.int32), np.arange(most, dtype=np.int32)
        if len(self._pages) < pages:
            self._pages = np.empty(pages, np.int32)
        room = room_bytes(self.team.n_threads, n_experts, n_rows, n_entries, job.n_groups_in, job.n_groups_hidden)
        if len(self._room) < room:
            self._room = np.empty(room, np.uint8)
        self._sizes.add(size)

    # ---- matrix by matrix: the plain loops, which say what is computed, or products of somebody's choice

    def _bank_by_bank(self, layer: int, experts, starts, rows, values, out) -> None:
        sources, at = [self.arena.source(layer, expert) for expert in experts.tolist()], 0
        for bank, run in groupby(sources, key=itemgetter(0)):
            places = np.array([place for _, place in run], np.int32)
            end = at + len(places)
            first, last = int(starts[at]), int(starts[end])
            entries = Entries(places, starts[at : end + 1] - starts[at], rows[first:last])
            self._one_by_one(self._bank(bank, layer), entries, values, out[first:last])
            at = end

    def _one_by_one(self, bank: tuple[Matrix, ...], entries: Entries, values, out) -> None:
        gate, up, down = bank
        control, n_entries = self.team.control, entries.n_entries
        x = Activations(values, control, self._spans[: values.shape[0]])
        gates, ups = np.empty((2, n_entries, gate.n_out), np.float32)
        gate.times(x, True, control, entries, gates)
        up.times(x, True, control, entries, ups)
        activate(gates, ups)
        own = Entries(entries.experts, entries.starts, self._lines[:n_entries])
        down.times(Activations(gates, control, self._spans[:n_entries]), True, control, own, out)

    def _bank(self, source: str, layer: int) -> tuple[Matrix, ...]:
        """Return a layer's gate, up and down over a bank of the arena."""
        bank = over_bank(self.layers[layer], self.arena, source, layer)
        return tuple(bank if self._change is None else map(self._change, bank))
