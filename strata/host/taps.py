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
        """Show recurrent state [slots, ...] as each segment's first row is about to read it."""
        if self._watches(point):
            self.observe(self.window, point, layer, state, Place(self.window.segment_slot, self.window.first))

    def _see_stored(self, point: str, layer: int, state: np.ndarray, window: Window, kept: np.ndarray) -> None:
        """Show recurrent state [slots, ...] as the last kept row of each segment left it."""
        if self._watches(point):
            last = (window.first + kept - 1)[kept > 0].astype(np.int32)
            self.observe(window, point, layer, state, Place(window.segment_slot[kept > 0], last))

    def _see_cells(self, point: str, layer: int, state: np.ndarray, slots: np.ndarray, cells: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Show the cells of state [slots, cells, ...] that rows write or read: cells [n] or [n, k] (negative: none)."""
        if state.size and self._watches(point):
            start = slots * np.int32(state.shape[1])
            lines = start + cells if cells.ndim == 1 else np.where(cells < 0, -1, start[:, None] + cells)
            self.observe(self.window, point, layer, state.reshape(-1, *state.shape[2:]), Place(lines.astype(np.int32, copy=False), rows))
