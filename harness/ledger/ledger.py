"""The ledger: a probe that records hashes of what it sees, and at the finest level the elements too.

Levels: 0 logits, 1 one residual per layer, 2 everything that operations give and read, 3 the elements as well, of what a
filter leaves.  While a run lasts only arrays are put aside, in one log per stage; keys are made afterwards
(`harness.ledger.records`), by request, prefix, layer, point and part, never by slot, row or step.  A window's log entries
come from one thread; a commit of another window may come beside it, and adds whole entries.  It reads and changes nothing.
Does not know: what points mean, how two ledgers compare.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from harness.ledger.filters import Only
from harness.ledger.points import points_of_level
from strata.errors import SeenEnough
from strata.numerics.hashing import line_hashes, row_hashes
from strata.rows import WHOLE, Place, Window

ELEMENTS = 3
"""The level from which elements are kept."""


class Entry(NamedTuple):
    """What one tap gave: records of one point in one window; rows int32 [n] of the window, parts int32 [n] or None."""

    window: int
    point: str
    layer: int
    hashes: np.ndarray
    rows: np.ndarray | None
    parts: np.ndarray | None
    elements: tuple["Elements", ...]


class Elements(NamedTuple):
    """One record's elements as they lay: values [lines, ...]; cells int32 [lines] where the lines are cells."""

    values: np.ndarray
    cells: np.ndarray | None


class StageLog:
    """What was seen on one stage: its windows in order, which rows they kept, the entries."""

    def __init__(self, device: str, first: int, last: int) -> None:
        self.device, self.first, self.last = device, first, last
        self.windows: list[Window] = []
        self.kept: dict[int, np.ndarray] = {}
        self.fields: list = []
        self.number: dict[Window, int] = {}
        self.chosen: list[np.ndarray | None] = []

    @property
    def entries(self) -> list[Entry]:
        """The entries; `fields` holds theirs one after the other, so that a run makes no objects for the garbage collector."""
        n = len(Entry._fields)
        return [Entry._make(self.fields[i : i + n]) for i in range(0, len(self.fields), n)]


class Ledger:
    """A probe for one engine.

    `level` and `only` say what is recorded.  `requests` gives the engine's request numbers other names, so that ledgers of
    engines that served parts of a workload can be joined.  With `only` about one request and a range of positions, the
    run is ended by SeenEnough when it is past them, if `may_stop`.
    """

    def __init__(self, level: int = 0, only: Only = Only(), requests: Mapping[int, int] | None = None, may_stop: bool = False) -> None:
        named = points_of_level(level)
        self.points = named if only.points is None else named & only.points
        self.level, self.only, self.stages = level, only, []
        self._names, self._may_stop = dict(requests or {}), may_stop
        self._is_filtered = only.requests is not None or only.positions is not None

    def opened(self, stage: int, device: str, first: int, last: int) -> None:
        """Open the stage's log."""
        self.stages.append(StageLog(device, first, last))

    def began(self, stage: int, window: Window) -> None:
        """Note the window; raises SeenEnough on the last stage where all that is wanted has passed."""
        log, chosen = self.stages[stage], None
        if self._is_filtered:
            requests = self.requests_of(window)
            if self._may_stop and stage == len(self.stages) - 1 and self.only.is_past(window, requests):
                raise SeenEnough()
            chosen = self.only.rows(window, requests)
        log.number[window] = len(log.windows)
        log.chosen.append(chosen)
        log.windows.append(window)

    def requests_of(self, window: Window) -> np.ndarray:
        """Return the request of each row, as this ledger names it, int32 [rows]."""
        return np.repeat(np.array([self._names.get(s.request, s.request) for s in window.segments], np.int32), window.count)

    def committed(self, stage: int, window: Window, kept: np.ndarray) -> None:
        """Note which rows were kept."""
        log = self.stages[stage]
        log.kept[log.number[window]] = kept.copy()

    def see(self, stage: int, window: Window, point: str, layer: int, values: np.ndarray, place: Place) -> None:
        """Record the hash of each record."""
        if self.only.layers is not None and layer not in self.only.layers:
            return
        log = self.stages[stage]
        number = log.number[window]
        chosen = log.chosen[number]
        if place is WHOLE and chosen is None and self.level < ELEMENTS:
            log.fields += (number, point, layer, row_hashes(values), None, None, ())
            return
        if chosen is not None:
            place = _narrowed(place, chosen, values.shape[0])
            if place is None:
                return
        elements = _elements(values, place) if self.level >= ELEMENTS and not place.hashed else ()
        log.fields += (number, point, layer, _hashes(values, place), place.rows, place.parts, elements)


def _hashes(values: np.ndarray, place: Place) -> np.ndarray:
    if place.hashed:
        return values if place.lines is None else values[place.lines]
    if place.lines is None and place.lengths is None:
        return row_hashes(values)
    lines = np.arange(values.shape[0], dtype=np.int32) if place.lines is None else place.lines
    return line_hashes(values, lines, place.lengths)


def _narrowed(place: Place, chosen: np.ndarray, n_values: int) -> Place | None:
    """Return the place of the records whose rows are chosen, None where there are none."""
    rows = place.rows if place.rows is not None else np.arange(len(chosen), dtype=np.int32)
    take = np.flatnonzero(chosen[rows])
    if not len(take):
        return None
    lines = take.astype(np.int32) if place.lines is None else place.lines[take]
    parts, lengths = (None if given is None else given[take] for given in (place.parts, place.lengths))
    return Place(lines, rows[take], parts, lengths, place.per_slot, place.hashed)


def _elements(values: np.ndarray, place: Place) -> tuple[Elements, ...]:
    lines = np.arange(values.shape[0], dtype=np.int32) if place.lines is None else place.lines
    found = []
    for i, line in enumerate(lines[:, None] if lines.ndim == 1 else lines):
        own = line[line >= 0]
        part = values[own]
        if place.lengths is not None:
            part = part.reshape(1, -1)[:, : place.lengths[i]]
        found.append(Elements(part.copy(), own % place.per_slot if place.per_slot else None))
    return tuple(found)
