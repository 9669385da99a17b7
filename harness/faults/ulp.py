"""A planted fault of one unit in the last place: a probe that flips the lowest bit of one element at run time.

It flips where it is told: at a point and layer, in rows that meet every condition given.  The flip is made in the values
where they lie, so the run goes on with it; no kernel is compiled anew.  Put it before a ledger (`Probes([fault, ledger])`)
to have the ledger see what the run computes with.  Points that are shown as hashes only cannot be flipped.
Does not know: arms, which of them it is planted in.
"""

from dataclasses import dataclass, fields

import numpy as np

from strata.errors import UsageError
from strata.rows import Place, Window
from strata.split.probes import SilentProbe

LARGEST = -1
"""Element to flip: the one with the largest magnitude, which a coding of the row feels most."""
MAGNITUDES = {np.dtype(np.float32): 0x7FFFFFFF, np.dtype(np.uint16): 0x7FFF}


@dataclass(frozen=True, slots=True)
class Where:
    """Which rows a fault hits; None means any.

    layer -1 is outside the layers; `part` an expert or the age of a tail's line; `min_segments`, `min_rows` what the window
    must hold at least; `element` an index into the record, or LARGEST; `most` flips at most (0: no limit).
    """

    point: str
    layer: int | None = None
    position: int | None = None
    request: int | None = None
    stage: int | None = None
    part: int | None = None
    min_segments: int = 0
    min_rows: int = 0
    element: int = LARGEST
    most: int = 0

    def text(self) -> str:
        """Return it as `parse_where` reads it."""
        given = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if f.name != "point" and getattr(self, f.name) != f.default]
        return ":".join([self.point, *given])


class UlpFault(SilentProbe):
    """Flips the lowest bit of one element of every record that `where` describes; `n_flips` counts."""

    def __init__(self, where: Where) -> None:
        self.where, self.n_flips = where, 0
        self.points = frozenset({where.point})

    def see(self, stage: int, window: Window, point: str, layer: int, values: np.ndarray, place: Place) -> None:
        """Flip, in place, what the conditions choose."""
        where = self.where
        if place.hashed or where.layer not in (None, layer) or where.stage not in (None, stage):
            return
        if len(window.segments) < where.min_segments or window.n_rows < where.min_rows:
            return
        for record in np.flatnonzero(self._hits(window, values, place)):
            if not where.most or self.n_flips < where.most:
                self.n_flips += flip(values, place, int(record), where.element)

    def _hits(self, window: Window, values: np.ndarray, place: Place) -> np.ndarray:
        """Return which records meet the conditions on rows and parts, bool [n]."""
        where, n = self.where, values.shape[0] if place.lines is None else len(place.lines)
        rows = np.arange(n) if place.rows is None else place.rows
        chosen = np.ones(n, np.bool_)
        if where.position is not None:
            chosen &= window.positions[rows] == where.position
        if where.request is not None:
            chosen &= np.array([s.request for s in window.segments])[window.segment_of_row[rows]] == where.request
        if where.part is not None:
            chosen &= place.parts == where.part if place.parts is not None else False
        return chosen


def flip(values: np.ndarray, place: Place, record: int, element: int) -> bool:
    """Flip the lowest bit of one element of a record in place; False where the record has no such element."""
    line_of = np.array([record]) if place.lines is None else np.atleast_1d(place.lines[record])
    table = values.reshape(values.shape[0], -1)
    if not np.shares_memory(table, values):
        raise UsageError("a planted fault", "its point's values do not lie in one piece", "plant it at another point")
    lines = line_of[line_of >= 0]
    width = table.shape[1]
    size = len(lines) * width if place.lengths is None else int(place.lengths[record])
    if size == 0 or element >= size:
        return False
    if element == LARGEST:
        flat = table[lines].reshape(-1)[:size]
        element = int(np.argmax(_magnitudes(flat)))
    line = table[lines[element // width]]
    bits = line.view(f"u{line.itemsize}")
    bits[element % width] ^= 1
    return True


def _magnitudes(flat: np.ndarray) -> np.ndarray:
    mask = MAGNITUDES.get(flat.dtype)
    return np.abs(flat.astype(np.int64)) if mask is None else flat.view(f"u{flat.itemsize}") & mask


def parse_where(text: str) -> Where:
    """Parse `POINT[:NAME=NUMBER]...`, as in `gdn.scan:layer=5:position=12`; raises UsageError."""
    point, *conditions = text.split(":")
    names = {field.name for field in fields(Where)} - {"point"}
    chosen = {}
    for condition in conditions:
        name, _, value = condition.partition("=")
        if name not in names or not value.lstrip("-").isdigit():
            raise UsageError(f"plant={text}", f"`{condition}` is no condition", f"give NAME=NUMBER with a NAME of {', '.join(sorted(names))}")
        chosen[name] = int(value)
    return Where(point, **chosen)
