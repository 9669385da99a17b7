"""Places: how the records of state lie in it, and which points are outlines; for the taps of every executor.

A record of a memory is a slot's, one of a tail is a line of a slot, one of cells a cell or several.  Does not know: who
shows them.
"""

import numpy as np

from strata.rows import Place, Window

OUTLINES = frozenset({"embed", "moe.residual", "logits", "hand_off"})
"""One residual per layer, and the logits."""


def cells_place(per_slot: int, slots: np.ndarray, cells: np.ndarray, rows: np.ndarray | None = None) -> Place:
    """Return the place of cells [n] or [n, k] (negative: none) of slots [n], in state with per_slot cells a slot."""
    start = slots * np.int32(per_slot)
    lines = start + cells if cells.ndim == 1 else np.where(cells < 0, -1, start[:, None] + cells)
    return Place(lines.astype(np.int32, copy=False), rows, per_slot=per_slot)


def tail_place(ages: np.ndarray, slots: np.ndarray, rows: np.ndarray) -> Place:
    """Return the place of the tails of slots [n], line by line, that belong to rows [n]; ages int32 [lines]."""
    n_lines = len(ages)
    lines = (slots[:, None] * np.int32(n_lines) + np.arange(n_lines, dtype=np.int32)).reshape(-1)
    return Place(lines, rows.repeat(n_lines), ages if len(rows) == 1 else np.tile(ages, len(rows)))


def oldest_first(n_lines: int) -> np.ndarray:
    """Return the ages of a tail's lines that lie oldest first: n-1, ..., 0."""
    return np.arange(n_lines - 1, -1, -1, dtype=np.int32)


def newest_first(n_lines: int) -> np.ndarray:
    """Return the ages of a tail's lines that lie newest first: 0, ..., n-1."""
    return np.arange(n_lines, dtype=np.int32)


def last_kept(window: Window, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (slots, rows of the last kept row) of the segments that keep any, int32."""
    some = kept > 0
    return window.segment_slot[some], (window.first + kept - 1)[some].astype(np.int32)


def completed_blocks(window: Window, block: int, cells_per_block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows [n] that complete a block of `block` positions, the block's cells [n, cells_per_block]), int32."""
    rows = np.flatnonzero(window.positions % block == block - 1).astype(np.int32)
    return rows, (window.positions[rows] // block * cells_per_block)[:, None] + np.arange(cells_per_block, dtype=np.int32)
