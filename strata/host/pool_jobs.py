"""The CPU pool's side of a card's expert tier: the experts that no card computes, one job each, all of a layer in one call.

`compute` takes rows as the router saw them, codes them itself, and leaves each entry's output in its line: the bits that the host
executor computes.  Experts are read where the arena has them; listed neighbours of one bank share a call.  One thread calls it.
Does not know: cards, windows, why an expert is not on a card.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from itertools import groupby
from operator import itemgetter

import numpy as np

from strata.cpu_pool.arena import PARTS
from strata.cpu_pool.expert_jobs import expert_jobs
from strata.cpu_pool.instruction_sets import PLAIN, instruction_set
from strata.cpu_pool.pages import buffer_words
from strata.cpu_pool.team import Team
from strata.errors import PoolJobError
from strata.formats.contract import GROUP
from strata.host.experts import activate
from strata.host.matrix import Activations, Entries, Matrix
from strata.host.placed import PlacedMoe

SPAN = 32


class PoolJobs:
    """Jobs over the experts of `layers` in an arena, on a team's threads.

    `blobs` counts the experts that were read from each of the arena's banks; `clocks` (decoded, prompt) the time that jobs take.
    """

    def __init__(
        self, layers: Mapping[int, PlacedMoe], arena, team: Team, clocks: tuple[AbstractContextManager, AbstractContextManager], blobs: Counter
    ) -> None:
        self.layers, self.arena, self.team, self.clocks, self.blobs = layers, arena, team, clocks, blobs
        self._banks: dict[tuple[str, int], tuple[Matrix, ...]] = {}
        self._room = self._lines = self._spans = np.empty(0, np.int32)
        self._floats = np.empty(0, np.float32)

    def use_arena(self, arena) -> None:
        """Read experts from another arena from now on."""
        self.arena = arena
        self._banks.clear()

    def compute(
        self, layer: int, experts: np.ndarray, starts: np.ndarray, rows: np.ndarray, values: np.ndarray, out: np.ndarray, is_prompt: bool
    ) -> None:
        """Fill out float32 [entries, H]; experts int32 [n >= 1], starts int32 [n + 1] from 0, rows int32 [entries], values float32 [rows, H].

        Raises PoolJobError where a job fails.
        """
        with self.clocks[int(is_prompt)]:
            try:
                sources = [self.arena.source(layer, expert) for expert in experts.tolist()]
                at = 0
                for bank, run in groupby(sources, key=itemgetter(0)):
                    places = np.array([place for _, place in run], np.int32)
                    end = at + len(places)
                    first, last = int(starts[at]), int(starts[end])
                    self._compute(self._bank(bank, layer), places, starts[at : end + 1] - starts[at], rows[first:last], values, out[first:last])
                    self.blobs[bank] += len(places)
                    at = end
            except Exception as error:
                raise PoolJobError(layer, error) from error

    def _compute(self, bank: tuple[Matrix, ...], experts, starts, rows, values, out) -> None:
        gate, up, down = bank
        instructions, n_entries, control = instruction_set(), len(rows), self.team.control
        self._make_room(gate, values.shape[0], n_entries)
        gates, ups = self._floats[: 2 * n_entries * gate.n_out].reshape(2, n_entries, gate.n_out)
        lines, spans = self._lines[:n_entries], self._spans
        if instructions == PLAIN:
            self._one_by_one(bank, Entries(experts, starts, rows), values, gates, ups, out)
            return
        n_in, n_hidden = gate.n_in // GROUP, gate.n_out // GROUP
        pages, hidden = self._room[: buffer_words(values.shape[0], n_in)], self._room[buffer_words(values.shape[0], n_in) :]
        run = expert_jobs((gate.type_id, up.type_id, down.type_id), n_in, n_hidden, instructions)
        run(control, gate.place, up.place, down.place, experts, starts, rows, values, spans, pages, gates, ups, hidden, lines, out)

    def _one_by_one(self, bank: tuple[Matrix, ...], entries: Entries, values, gates, ups, out) -> None:
        """The same with the plain loops, which say what is computed."""
        gate, up, down = bank
        control, n_entries = self.team.control, entries.n_entries
        x = Activations(values, control, self._spans[: values.shape[0]])
        gate.times(x, True, control, entries, gates)
        up.times(x, True, control, entries, ups)
        activate(gates, ups)
        own = Entries(entries.experts, entries.starts, self._lines[:n_entries])
        down.times(Activations(gates, control, self._spans[:n_entries]), True, control, own, out)

    def _make_room(self, gate: Matrix, n_rows: int, n_entries: int) -> None:
        """Have scratch for so many rows and entries."""
        most = max(n_rows, n_entries)
        if len(self._spans) < most:
            self._spans, self._lines = np.full(most, SPAN, np.int32), np.arange(most, dtype=np.int32)
        words = buffer_words(n_rows, gate.n_in // GROUP) + buffer_words(n_entries, gate.n_out // GROUP)
        if self._room.size < words:
            self._room = np.empty(words, np.int32)
        if self._floats.size < 2 * n_entries * gate.n_out:
            self._floats = np.empty(2 * n_entries * gate.n_out, np.float32)

    def _bank(self, source: str, layer: int) -> tuple[Matrix, ...]:
        """Return a layer's gate, up and down over a bank of the arena."""
        if (source, layer) not in self._banks:
            blobs = [self.arena.bank(source, layer, part) for part in PARTS]
            placed = (getattr(self.layers[layer], part) for part in PARTS)
            self._banks[source, layer] = tuple(matrix.over(blob.reshape(-1), blob.shape[1]) for matrix, blob in zip(placed, blobs, strict=True))
        return self._banks[source, layer]
