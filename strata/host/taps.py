"""Taps of the host's executors: what an observer gets to see, and where it lies.

`observe(window, point, layer, values, place)` sees the result of an operation before it is used, or state as it lies in the
session's arrays (`.read` just before it is read, `.stored` just after it was written); what it writes there is computed
with.  Only the points in `watched` are shown, and nothing is done for the others: where only outlines are watched (the
logits, one residual per layer), blocks do not even look up their points.  Does not know: who observes.
"""

from collections.abc import Callable, Container

import numpy as np

from strata.places import OUTLINES, cells_place, last_kept, tail_place
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

    window: Window | None = None
    place: Place = WHOLE
    _observe: Observer | None = None
    _watched: Container[str] = EVERY_POINT
    _details: Observer | None = None
    """The observer, where more than outlines is watched."""

    def _places_begin(self) -> None:
        """Forget how the window before lay."""
        self.place = WHOLE
        self._tail_places: dict[tuple, Place] = {}

    @property
    def observe(self) -> Observer | None:
        """Who sees the points, None for nobody."""
        return self._observe

    @observe.setter
    def observe(self, observer: Observer | None) -> None:
        self._observe = observer
        self._choose_details()

    @property
    def watched(self) -> Container[str]:
        """The points that are shown."""
        return self._watched

    @watched.setter
    def watched(self, points: Container[str]) -> None:
        self._watched = points
        self._choose_details()

    def _choose_details(self) -> None:
        has_outlines_only = isinstance(self._watched, frozenset) and self._watched <= OUTLINES
        self._details = None if has_outlines_only else self._observe

    def _watches(self, point: str) -> bool:
        """Tell whether somebody wants to see a point: for taps that cost something to lay out."""
        return self._details is not None and point in self._watched

    def _see(self, point: str, layer: int, values: np.ndarray) -> None:
        """Show one record per row of the blocks at work."""
        if self._details is not None and point in self._watched:
            self._details(self.window, point, layer, values, self.place)

    def _see_outline(self, point: str, layer: int, values: np.ndarray) -> None:
        """As `_see`, for OUTLINES."""
        if self._observe is not None and point in self._watched:
            self._observe(self.window, point, layer, values, self.place)

    def _see_read(self, point: str, layer: int, state: np.ndarray) -> None:
        """Show memories [slots, ...] as each segment's first row is about to read them."""
        if self._watches(point):
            self._details(self.window, point, layer, state, Place(self.window.segment_slot, self.window.first))

    def _see_stored(self, point: str, layer: int, state: np.ndarray, window: Window, kept: np.ndarray) -> None:
        """Show memories [slots, ...] as the last kept row of each segment left them."""
        if self._watches(point):
            slots, rows = last_kept(window, kept)
            self._details(window, point, layer, state, Place(slots, rows))

    def _see_tail_read(self, point: str, layer: int, tail: np.ndarray, ages: np.ndarray) -> None:
        """Show tails [slots, lines, ...], line by line, as each segment's first row is about to read them; ages int32 [lines]."""
        if self._watches(point):
            key = ("read", id(ages))
            if key not in self._tail_places:
                self._tail_places[key] = tail_place(ages, self.window.segment_slot, self.window.first)
            self._details(self.window, point, layer, _flat(tail), self._tail_places[key])

    def _see_tail_stored(self, point: str, layer: int, tail: np.ndarray, ages: np.ndarray, window: Window, kept: np.ndarray) -> None:
        """Show tails [slots, lines, ...], line by line, as the last kept row of each segment left them."""
        if not self._watches(point):
            return
        if not window.keep:  # a commit, which another thread may be about
            self._details(window, point, layer, _flat(tail), tail_place(ages, *last_kept(window, kept)))
            return
        key = ("stored", id(ages))
        if key not in self._tail_places:
            self._tail_places[key] = tail_place(ages, *last_kept(window, kept))
        self._details(window, point, layer, _flat(tail), self._tail_places[key])

    def _see_cells(self, point: str, layer: int, state: np.ndarray, slots: np.ndarray, cells: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Show the cells of state [slots, cells, ...] that rows write or read: cells [n] or [n, k] (negative: none)."""
        if self._watches(point):
            self._details(self.window, point, layer, _flat(state), cells_place(state.shape[1], slots, cells, rows))


def _flat(state: np.ndarray) -> np.ndarray:
    """Return state [slots, lines, ...] as [slots * lines, values], where it lies."""
    return state.reshape(state.shape[0] * state.shape[1], -1)
