"""Taps of a stage's state on a card: recurrent memories, tails, cells, as they are read and as they were stored.

Points, places and shapes are those of the host's executor (`host/executor.py`, `host/taps.py`).  Of an array as large as
all slots together only the lines that a window reads or writes are copied.  Does not know: launches.
"""

from collections.abc import Sequence

import numpy as np

from strata.cuda.attention.cells import CELL_FORMATS
from strata.cuda.stage.taps import NoTaps
from strata.places import cells_place, completed_blocks, last_kept, newest_first, oldest_first, tail_place
from strata.rows import Place, Window

KV_NAMES = ("k_codes", "k_scales", "v_codes", "v_scales")


class StateTaps:
    """Notes points of a stage's sessions among the taps of a recording, or of a commit."""

    def __init__(self, taps: NoTaps, sessions, config, kv: str) -> None:
        self.taps, self.sessions, self.config, self.kv = taps, sessions, config, kv

    # ---- recurrent state

    def memory(self, moment: str, layer: int) -> None:
        """Memories [slots, v_heads, S, S] of a layer; `moment` is `read` or `stored`."""
        c, s, point = self.config, self.sessions, f"gdn.memory.{moment}"
        if self.taps.wants(point):
            shape = (s.n_slots, c.n_ssm_v_heads, c.ssm_state, c.ssm_state)
            self.taps.see_state(point, layer, s.memory_of(layer), shape, _slots(moment, 1), _memory_place(moment))

    def gdn_tail(self, moment: str, layer: int) -> None:
        """The convolution's tails of a layer."""
        c, s, point = self.config, self.sessions, f"gdn.tail.{moment}"
        if self.taps.wants(point):
            self._tail(point, moment, layer, s.tail_of(layer), oldest_first(c.conv_taps - 1), c.ssm_channels)

    def ngram_tail(self, moment: str, layer: int) -> None:
        """The n-gram layer's tails."""
        c = self.config
        self._tail(f"ngram.tail.{moment}", moment, layer, self.sessions.ngram_tail, oldest_first(c.ple_history), c.residual_width)

    def history(self, moment: str, layer: int) -> None:
        """The n-gram layer's last two tokens."""
        self._tail(f"ngram.history.{moment}", moment, layer, self.sessions.history, newest_first(2), 1)

    def _tail(self, point: str, moment: str, layer: int, array, ages: np.ndarray, width: int) -> None:
        n = len(ages)

        def place(window: Window, kept: np.ndarray) -> Place:
            return tail_place(ages, *_slots_and_rows(moment, window, kept))

        self.taps.see_state(point, layer, array, (self.sessions.n_slots * n, width), _slots(moment, n), place)

    # ---- cells

    def kv_stored(self, layer: int) -> None:
        """The rows' own cells, just written."""
        self._kv("stored", layer, _own_cells(self.sessions.context), lambda window: window.positions)

    def kv_read(self, layer: int, chosen) -> None:
        """The cells that rows attend to; `chosen(window)` int32 [rows, n], negative: none."""
        self._kv("read", layer, _cells_so_far(self.sessions.context), chosen)

    def _kv(self, moment: str, layer: int, ranges, cells_of) -> None:
        c, n_cells, form = self.config, self.sessions.context, CELL_FORMATS[self.kv]
        n_scales = c.head_dim // form.values_per_scale if form.values_per_scale else 0

        def place(window: Window, kept: np.ndarray) -> Place:
            return cells_place(n_cells, window.slots, cells_of(window))

        for name in KV_NAMES:
            width = c.n_kv_heads * (c.head_dim if name.endswith("codes") else n_scales)
            if width:
                shape = (self.sessions.n_slots * n_cells, width)
                self.taps.see_state(f"qsa.{name}.{moment}", layer, getattr(self.sessions.cells[layer], name), shape, ranges, place)

    def indexer_stored(self, layer: int) -> None:
        """Raw keys of the rows, and pooled keys of the blocks that they complete, just written."""
        c, cells, n_slots = self.config, self.sessions.cells[layer], self.sessions.n_slots
        n_cells, n_blocks, block = cells.n_cells, cells.n_blocks, c.indexer_block

        def raw_place(window: Window, kept: np.ndarray) -> Place:
            return cells_place(n_cells, window.slots, window.positions)

        def pooled_place(window: Window, kept: np.ndarray) -> Place:
            rows, blocks = completed_blocks(window, block, 1)
            return cells_place(n_blocks, window.slots[rows], blocks, rows)

        def pooled_ranges(window: Window, kept: np.ndarray) -> Sequence[tuple[int, int]]:
            return [(int(line), 1) for line in pooled_place(window, kept).lines.reshape(-1)]

        see = self.taps.see_state
        see("indexer.raw.stored", layer, cells.raw, (n_slots * n_cells, c.indexer_dim), _own_cells(n_cells), raw_place)
        see("indexer.pooled.stored", layer, cells.pooled, (n_slots * n_blocks, c.indexer_dim), pooled_ranges, pooled_place)

    def pooled_read(self, layer: int) -> None:
        """Pooled keys that rows score."""
        c, cells = self.config, self.sessions.cells[layer]
        n_blocks = cells.n_blocks

        def place(window: Window, kept: np.ndarray) -> Place:
            n = scored_blocks(window, c)
            blocks = np.arange(int(window.positions.max() + 1) // c.indexer_block + 1, dtype=np.int32)
            return cells_place(n_blocks, window.slots, np.where(blocks < n[:, None], blocks, -1))

        def ranges(window: Window, kept: np.ndarray) -> Sequence[tuple[int, int]]:
            last = scored_blocks(window, c)[window.first + window.count - 1]
            return [(int(slot) * n_blocks, int(n)) for slot, n in zip(window.segment_slot, last, strict=True)]

        self.taps.see_state("indexer.pooled.read", layer, cells.pooled, (self.sessions.n_slots * n_blocks, c.indexer_dim), ranges, place)


def scored_blocks(window: Window, config) -> np.ndarray:
    """Return how many blocks each row scores, int32 [rows]: none where it may take all its cells."""
    n = (window.positions + 1) // config.indexer_block
    return np.where(window.positions >= config.selection_width, n, 0).astype(np.int32)


def _slots_and_rows(moment: str, window: Window, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (window.segment_slot, window.first) if moment == "read" else last_kept(window, kept)


def _memory_place(moment: str):
    return lambda window, kept: Place(*_slots_and_rows(moment, window, kept))


def _slots(moment: str, n_lines: int):
    """The lines of a window's slots, n_lines each."""
    return lambda window, kept: [(int(slot) * n_lines, n_lines) for slot in _slots_and_rows(moment, window, kept)[0]]


def _own_cells(n_cells: int):
    def ranges(window: Window, kept: np.ndarray) -> Sequence[tuple[int, int]]:
        return [(s.slot * n_cells + s.start, len(s.tokens)) for s in window.segments]

    return ranges


def _cells_so_far(n_cells: int):
    def ranges(window: Window, kept: np.ndarray) -> Sequence[tuple[int, int]]:
        return [(s.slot * n_cells, s.start + len(s.tokens)) for s in window.segments]

    return ranges
