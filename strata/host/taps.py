"""Taps of the host's executors: what an observer gets to see, and where it lies.

`observe(window, point, layer, values, place)` sees the result of an operation before it is used, or state as it lies in the
session's arrays (`.read` just before it is read, `.stored` just after it was written); what it writes there is computed
with.  Only the points in `watched` are shown, and nothing is done for the others.  Does not know: who observes.
"""

from collections.abc import Callable, Container

import numpy as np

from strata.rows import WHOLE, Place, Window

Observer = Callable[[Window, str, int, np.ndarray, Place], None]


class EveryPoint:
    """Contains every point's name."""

    __slots__ = ()

    def __contains__(self, point: str) -> bool:
        return True


EVERY_POINT = EveryPoint()


class Taps:
    """The observed side of an executor; `window` is the window at work, `place` how the rows of its blocks lie in it."""

    observe: Observer | None = None
    watched: Container[str] = EVERY_POINT
    window: Window | None = None
    place: Place = WHOLE

    def _watches(self, point: str) -> bool:
        """Tell whether somebody wants to see a point: for taps that cost something to lay out."""
        return self.observe is not None and point in self.watched

    def _see(self, point: str, layer: int, values: np.ndarray) -> None:
        """Show one record per row of the blocks at work."""
        if self.observe is not None and point in self.watched:
            self.observe(self.window, point, layer, values, self.place)

    def _see_read(self, point: str, layer: int, state: np.ndarray) -> None:
        """Show memories [slots, ...] as each segment's first row is about to read them."""
        if self._watches(point):
            self.observe(self.window, point, layer, state, Place(self.window.segment_slot, self.window.first))

    def _see_stored(self, point: str, layer: int, state: np.ndarray, window: Window, kept: np.ndarray) -> None:
        """Show memories [slots, ...] as the last kept row of each segment left them."""
        if self._watches(point):
            slots, rows = _last_kept(window, kept)
            self.observe(window, point, layer, state, Place(slots, rows))

    def _see_tail_read(self, point: str, layer: int, tail: np.ndarray, ages: np.ndarray) -> None:
        """Show tails [slots, lines, ...], line by line, as each segment's first row is about to read them; ages int32 [lines]."""
        if self._watches(point):
            self._see_tail(point, layer, tail, ages, self.window, self.window.segment_slot, self.window.first)

    def _see_tail_stored(self, point: str, layer: int, tail: np.ndarray, ages: np.ndarray, window: Window, kept: np.ndarray) -> None:
        """Show tails [slots, lines, ...], line by line, as the last kept row of each segment left them."""
        if self._watches(point):
            self._see_tail(point, layer, tail, ages, window, *_last_kept(window, kept))

    def _see_tail(self, point: str, layer: int, tail: np.ndarray, ages: np.ndarray, window: Window, slots: np.ndarray, rows: np.ndarray) -> None:
        n_lines = np.int32(len(ages))
        lines = (slots[:, None] * n_lines + np.arange(n_lines, dtype=np.int32)).reshape(-1)
        flat = tail.reshape(tail.shape[0] * tail.shape[1], -1)
        self.observe(window, point, layer, flat, Place(lines, np.repeat(rows, n_lines), np.tile(ages, len(rows))))

    def _see_cells(self, point: str, layer: int, state: np.ndarray, slots: np.ndarray, cells: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Show the cells of state [slots, cells, ...] that rows write or read: cells [n] or [n, k] (negative: none)."""
        if state.size and self._watches(point):
            per_slot = state.shape[1]
            start = slots * np.int32(per_slot)
            lines = start + cells if cells.ndim == 1 else np.where(cells < 0, -1, start[:, None] + cells)
            flat = state.reshape(-1, *state.shape[2:])
            self.observe(self.window, point, layer, flat, Place(lines.astype(np.int32, copy=False), rows, per_slot=per_slot))


def oldest_first(n_lines: int) -> np.ndarray:
    """Return the ages of a tail's lines that lie oldest first: n-1, ..., 0."""
    return np.arange(n_lines - 1, -1, -1, dtype=np.int32)


def newest_first(n_lines: int) -> np.ndarray:
    """Return the ages of a tail's lines that lie newest first: 0, ..., n-1."""
    return np.arange(n_lines, dtype=np.int32)


def _last_kept(window: Window, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (slots, rows of the last kept row) of the segments that keep any, int32."""
    some = kept > 0
    return window.segment_slot[some], (window.first + kept - 1)[some].astype(np.int32)
