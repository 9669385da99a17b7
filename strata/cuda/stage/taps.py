"""Taps of a card: which points of a window lie in which buffers, noted while the window is recorded.

A `Tap` says behind how many launches a point can be seen, and how its values come to the host in the host's own layout and
back again.  Most buffers lie as the host's arrays do.  What differs is converted here: codes have a turned copy and sums, and of
state only the lines that a window touches are copied, into an array as large as the host's own.  Where the launch that made
values also used them, `again` names the launches that use them once more, for an observer that changed them.

`NO_TAPS` is given where nobody looks: it notes nothing, and recorders join operations as they like.  `CardTaps.is_apart` asks
them for one launch an operation where they have both, so that more points can be seen.  Does not know: observers.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.formats.contract import GROUP
from strata.places import OUTLINES
from strata.rows import WHOLE, Place, Window

TOP = -1
FINAL = frozenset({"logits", "hand_off"})
"""Points that are seen without any tap: they reach the host anyway."""

Ranges = Callable[[Window, np.ndarray], Sequence[tuple[int, int]]]
Placing = Callable[[Window, np.ndarray], Place]


@dataclass(frozen=True, slots=True, eq=False)
class Tap:
    """A point behind the first `at` launches of a window.

    array    the card's buffer, flat
    shape    of the values as the host shows them; the first dimension are lines
    place    where the records lie, from (window, kept rows of each segment)
    ranges   which lines matter, as (first, count) from the same; None: all
    coded    the turned copy of codes and their sums, which follow a change of them
    again    makes the launches that use changed values once more
    is_final whether the launch behind used the values already and cannot be repeated: changes are refused
    """

    at: int
    point: str
    layer: int
    array: Any
    shape: tuple[int, ...]
    place: Placing
    ranges: Ranges | None = None
    coded: tuple[Any, ...] = ()
    again: Callable[[], Sequence] | None = None
    is_final: bool = False

    def fetch(self, device, ranges: Sequence[tuple[int, int]]) -> np.ndarray:
        """Return the values on the host, in the host's layout; lines outside the ranges are zeros."""
        values = np.zeros(self.shape, self.array.dtype)
        for part, there in self._parts(values, ranges):
            there.copy_to_host(part, stream=device.stream)
        device.synchronise()
        return values

    def put(self, device, values: np.ndarray, ranges: Sequence[tuple[int, int]]) -> None:
        """Copy values of the host back to the card."""
        for part, there in self._parts(values, ranges):
            there.copy_to_device(part, stream=device.stream)
        for twin, made in zip(self.coded, (turned(values), sums(values)) if self.coded else (), strict=True):
            twin[: made.size].copy_to_device(made.reshape(-1), stream=device.stream)
        device.synchronise()

    def _parts(self, values: np.ndarray, ranges: Sequence[tuple[int, int]]):
        """Yield pairs of the host's and the card's flat parts."""
        flat, width = values.reshape(-1), int(np.prod(self.shape[1:]))
        for first, count in ranges:
            begin, end = first * width, (first + count) * width
            if end > begin:
                yield flat[begin:end], self.array[begin:end]


def fetched(array, n: int) -> np.ndarray:
    """Return the first n values of a flat buffer on the card; nothing may be running."""
    values = np.zeros(n, array.dtype)
    array[:n].copy_to_host(values)
    return values


def turned(codes: np.ndarray) -> np.ndarray:
    """Return codes int8 [..., 16 n] with each 16 transposed as 4 x 4: value 4 a + b at 4 b + a (`coding.py`)."""
    return np.ascontiguousarray(codes.reshape(-1, 4, 4).transpose(0, 2, 1)).reshape(codes.shape)


def sums(codes: np.ndarray) -> np.ndarray:
    """Return the sum of each 32 of codes int8 [..., 32 n], int32 flat."""
    return codes.reshape(-1, GROUP).sum(axis=1, dtype=np.int32)


class NoTaps:
    """Notes nothing."""

    __slots__ = ()
    is_apart = False
    taken: tuple[Tap, ...] = ()

    def wants(self, point: str) -> bool:
        """Whether somebody wants to see a point."""
        return False

    def open(self, launches: list) -> None:
        """Begin a recording."""

    def see(self, point: str, layer: int, array, n_rows: int, width, place=None, again=None, is_final: bool = False) -> None:
        """Note values [rows, width]."""

    def see_coded(self, point: str, layer: int, coded, n_rows: int, place=None) -> None:
        """Note codes and scales of activations."""

    def see_state(self, point: str, layer: int, array, shape: tuple[int, ...], ranges: Ranges, place: Placing) -> None:
        """Note state."""


NO_TAPS = NoTaps()


class CardTaps(NoTaps):
    """Notes the watched points of one recording, in `taken`."""

    __slots__ = ("_launches", "_noted", "_watched", "is_apart")

    def __init__(self, watched: Container[str]) -> None:
        self._watched = watched
        self.is_apart = not has_outlines_only(watched)
        self.open([])

    def open(self, launches: list) -> None:
        """Begin a recording into a list of launches: what was noted before is forgotten."""
        self._launches = launches
        self._noted: list[Tap] = []

    @property
    def taken(self) -> tuple[Tap, ...]:
        """What was noted since the recording began, in order."""
        return tuple(self._noted)

    def wants(self, point: str) -> bool:
        """Whether somebody wants to see a point."""
        return point in self._watched and point not in FINAL

    def see(self, point: str, layer: int, array, n_rows: int, width, place=None, again=None, is_final: bool = False) -> None:
        """Note values [n_rows, width] as the launches so far leave them; width a number or the trailing dimensions."""
        if self.wants(point):
            shape = (n_rows, *(width if isinstance(width, tuple) else (width,)))
            self._noted.append(Tap(len(self._launches), point, layer, array, shape, place or whole, again=again, is_final=is_final))

    def see_coded(self, point: str, layer: int, coded, n_rows: int, place=None) -> None:
        """Note `POINT.codes` int8 [n_rows, n] and `POINT.scales` float32 [n_rows, n / 32]."""
        at = len(self._launches)
        if self.wants(f"{point}.codes"):
            shape = (n_rows, coded.n)
            self._noted.append(Tap(at, f"{point}.codes", layer, coded.codes, shape, place or whole, coded=(coded.turned, coded.sums)))
        if self.wants(f"{point}.scales"):
            self._noted.append(Tap(at, f"{point}.scales", layer, coded.scales, (n_rows, coded.n // GROUP), place or whole))

    def see_state(self, point: str, layer: int, array, shape: tuple[int, ...], ranges: Ranges, place: Placing) -> None:
        """Note state of a shape [lines, ...], of which a window touches some lines."""
        if self.wants(point):
            self._noted.append(Tap(len(self._launches), point, layer, array, shape, place, ranges))


def whole(window: Window, kept: np.ndarray) -> Place:
    """One record per row."""
    return WHOLE


def of_logit_rows(window: Window, kept: np.ndarray) -> Place:
    """One record per row whose logits are wanted."""
    return Place(rows=window.logit_rows)


def has_outlines_only(watched: Container[str]) -> bool:
    """Whether no more than outlines is known to be watched."""
    return isinstance(watched, frozenset) and watched <= OUTLINES


def needs_taps(observe, watched: Container[str]) -> bool:
    """Whether an observer wants to see what does not reach the host anyway."""
    return observe is not None and not (isinstance(watched, frozenset) and watched <= FINAL)
