"""Sights: where an arm computed a record, and the state of an operation's inputs, looked up in the passes' records.

Does not know: how causes are chosen.
"""

from collections.abc import Sequence

import numpy as np

from harness.ledger.points import POINTS, RESIDUALS, TOP, Point, in_words
from harness.ledger.records import Records, StageRows
from harness.locate.finding import Company, InputState, Sight

EQUAL, DIFFERS, MISSING = "equal", "differs", "not recorded"


def sight_of(records: Records, record: int) -> Sight:
    """Return where a record was computed."""
    stage = records.stages[int(records.owner[record])]
    at = int(records.row[record])
    number, row = int(stage.window[at]), int(stage.row[at])
    rows = np.flatnonzero(stage.window == number)
    window = stage.windows[number]
    company = tuple(
        Company(first, len(segment.tokens), int(stage.request[rows[first]]), segment.start, segment.slot)
        for first, segment in zip(window.first.tolist(), window.segments, strict=True)
    )
    layers = f"{stage.first}-{stage.last - 1}"
    return Sight(stage.device, stage.stage, layers, number, row, window.n_rows, int(window.slots[row]), bool(stage.kept[at]), company)


class Inputs:
    """Looks up inputs in several pairs of records: the finest pass, and those before it."""

    def __init__(self, pairs: Sequence[tuple[Records, Records]]) -> None:
        self._pairs = pairs
        self._n_layers = max((stage.last for pair in pairs for records in pair for stage in records.stages), default=0)

    def states(self, point: Point, layer: int, records: Records, record: int) -> tuple[InputState, ...]:
        """Return the state of every input of a record's point that any arm recorded."""
        stage, row = records.stages[int(records.owner[record])], int(records.row[record])
        found = [self._state(given, point, layer, stage, row) for given in point.inputs]
        return tuple(state for state in found if state is not None)

    def _state(self, given: str, point: Point, layer: int, stage: StageRows, row: int) -> InputState | None:
        name, _, back = given.lstrip("=").partition("<")
        rows = _rows_before(stage, row, back) if back else [row]
        if given.startswith("=") and point.name.endswith(".read"):
            rows = _rows_before(stage, row, "1")
        for candidate, at in _places(name, point, layer, self._n_layers):
            counts = self._count(candidate, at, {int(stage.prefix[i]) for i in rows})
            if sum(counts.values()):
                state = DIFFERS if counts[DIFFERS] else EQUAL if counts[EQUAL] else MISSING
                return InputState(candidate, in_words(candidate, at) + (" of rows before" if back else ""), state, sum(counts.values()))
        return None

    def _count(self, name: str, layer: int, prefixes: set[int]) -> dict[str, int]:
        counts = {EQUAL: 0, DIFFERS: 0, MISSING: 0}
        for left, right in self._pairs:
            a, b = (_hashes(records, name, layer, prefixes) for records in (left, right))
            for key in a.keys() | b.keys():
                state = MISSING if key not in a or key not in b else EQUAL if a[key] == b[key] else DIFFERS
                counts[state] += 1
            if sum(counts.values()):
                break
        return counts


def _places(name: str, point: Point, layer: int, n_layers: int) -> list[tuple[str, int]]:
    """Return the (point, layer) that an input may be, the nearest first."""
    if name == "residual":
        inside = [n for n in reversed(RESIDUALS[1:]) if list(POINTS).index(n) < list(POINTS).index(point.name)] if layer != TOP else []
        return [*((n, layer) for n in inside), ("moe.residual", n_layers - 1 if layer == TOP else layer - 1), ("embed", TOP)]
    known = POINTS.get(name)
    return [(name, layer if known is None or known.where == "layer" else TOP)]


def _rows_before(stage: StageRows, row: int, back: str) -> list[int]:
    rows: list[int] = []
    limit = 1 << 30 if back == "*" else int(back)
    while stage.parent[row] >= 0 and len(rows) < limit:
        row = int(stage.parent[row])
        rows.append(row)
    return rows


def _hashes(records: Records, name: str, layer: int, prefixes: set[int]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return {(prefix, part): hash} of a point's records at rows with these prefixes."""
    if name not in records.names:
        return {}
    chosen = np.flatnonzero((records.point == records.names.index(name)) & (records.layer == layer))
    prefix = records.of_rows("prefix")[chosen]
    return {
        (int(p), int(records.part[i])): (int(records.hash[i, 0]), int(records.hash[i, 1]))
        for p, i in zip(prefix, chosen, strict=True) if int(p) in prefixes
    }
