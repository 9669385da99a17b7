"""Records: what ledgers put aside, with the keys that let runs be joined.

A record's key is (request with its tokens up to the row, layer, point, part).  Not the slot, row, window or stage: these
are kept beside it, to say where a difference lies.  `kept` is False for rows of drafts that were rejected; their prefix
holds the rejected token, so that no accepted row has their key.  Does not know: comparisons.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.ledger.ledger import Elements, Entry, Ledger, StageLog
from harness.ledger.points import TOKENS, TOP
from harness.ledger.prefixes import chain, parents
from strata.numerics.hashing import row_hashes
from strata.rows import Window

NO_PART = -1


@dataclass(frozen=True, slots=True, eq=False)
class StageRows:
    """All rows of one stage's windows (layers first .. last-1), in order; `parent` as in `harness.ledger.prefixes`, within these rows."""

    device: str
    stage: int
    first: int
    last: int
    windows: tuple[Window, ...]
    window: np.ndarray
    row: np.ndarray
    request: np.ndarray
    position: np.ndarray
    kept: np.ndarray
    parent: np.ndarray
    prefix: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Columns over all records: `owner` is an index into `stages`, `row` one into its rows; hash uint64 [n, 2]."""

    stages: tuple[StageRows, ...]
    names: tuple[str, ...]
    owner: np.ndarray
    row: np.ndarray
    point: np.ndarray
    layer: np.ndarray
    part: np.ndarray
    hash: np.ndarray
    elements: dict[int, Elements]

    def __len__(self) -> int:
        return len(self.row)

    def of_rows(self, column: str) -> np.ndarray:
        """Return a column of the stages' rows, for every record."""
        out = np.zeros(len(self), getattr(self.stages[0], column).dtype if self.stages else np.int32)
        for owner, stage in enumerate(self.stages):
            mine = self.owner == owner
            out[mine] = getattr(stage, column)[self.row[mine]]
        return out


def read_records(ledgers: Sequence[Ledger]) -> Records:
    """Return the records of all stages of ledgers of one arm."""
    logs = [(number, log) for ledger in ledgers for number, log in enumerate(ledger.stages)]
    stages = tuple(_stage_rows(number, log, ledger) for ledger in ledgers for number, log in enumerate(ledger.stages))
    with_tokens = any(TOKENS in ledger.points for ledger in ledgers)
    entries = [(owner, entry) for owner, (_, log) in enumerate(logs) for entry in log.entries]
    if with_tokens:
        entries += [(owner, entry) for owner, (number, log) in enumerate(logs) if number == 0 for entry in _token_entries(log)]
    names = tuple(dict.fromkeys(entry.point for _, entry in entries))
    return _columns(stages, names, entries)


def _stage_rows(number: int, log: StageLog, ledger: Ledger) -> StageRows:
    requests = [ledger.requests_of(window) for window in log.windows]
    counts = np.array([window.n_rows for window in log.windows], np.int32)
    window = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    parent = parents(log.windows, requests)
    tokens, position, request = (
        _joined(part, np.int32) for part in ([w.tokens for w in log.windows], [w.positions for w in log.windows], requests)
    )
    prefix = np.empty(len(tokens), np.uint64)
    chain(tokens, parent, request, prefix)
    row = _joined([np.arange(n, dtype=np.int32) for n in counts], np.int32)
    kept = _joined([_kept_rows(w, log.kept.get(i)) for i, w in enumerate(log.windows)], np.bool_)
    return StageRows(log.device, number, log.first, log.last, tuple(log.windows), window, row, request, position, kept, parent, prefix)


def _kept_rows(window: Window, kept: np.ndarray | None) -> np.ndarray:
    if window.keep:
        return np.ones(window.n_rows, np.bool_)
    n_kept = np.zeros(len(window.segments), np.int32) if kept is None else kept
    return np.arange(window.n_rows) - window.first[window.segment_of_row] < n_kept[window.segment_of_row]


def _token_entries(log: StageLog) -> list[Entry]:
    """The tokens themselves as records: what token histories must hold."""
    found = []
    for number, (window, chosen) in enumerate(zip(log.windows, log.chosen, strict=True)):
        rows = np.arange(window.n_rows, dtype=np.int32) if chosen is None else np.flatnonzero(chosen).astype(np.int32)
        if len(rows):
            found.append(Entry(number, TOKENS, TOP, row_hashes(window.tokens[rows][:, None]), rows, None, ()))
    return found


def _columns(stages: tuple[StageRows, ...], names: tuple[str, ...], entries: Sequence[tuple[int, Entry]]) -> Records:
    number = {name: i for i, name in enumerate(names)}
    sizes = np.array([len(entry.hashes) for _, entry in entries], np.int64)
    bases = [np.searchsorted(stage.window, np.arange(len(stage.windows))) for stage in stages]
    base = np.array([bases[owner][entry.window] for owner, entry in entries], np.int32)
    starts = np.concatenate(([0], np.cumsum(sizes))) if len(sizes) else np.zeros(1, np.int64)
    return Records(
        stages, names,
        owner=np.repeat(np.array([owner for owner, _ in entries], np.int16), sizes),
        row=np.repeat(base, sizes) + _joined([_rows(entry) for _, entry in entries], np.int32),
        point=np.repeat(np.array([number[entry.point] for _, entry in entries], np.int16), sizes),
        layer=np.repeat(np.array([entry.layer for _, entry in entries], np.int16), sizes),
        part=_joined([np.full(len(e.hashes), NO_PART, np.int32) if e.parts is None else e.parts for _, e in entries], np.int32),
        hash=_joined([entry.hashes for _, entry in entries], np.uint64, 2),
        elements={int(starts[i]) + j: e for i, (_, entry) in enumerate(entries) for j, e in enumerate(entry.elements)},
    )


def _rows(entry: Entry) -> np.ndarray:
    return np.arange(len(entry.hashes), dtype=np.int32) if entry.rows is None else entry.rows


def _joined(parts: Sequence[np.ndarray], dtype: type, columns: int = 0) -> np.ndarray:
    if parts:
        return np.concatenate(parts).astype(dtype, copy=False)
    return np.empty((0, columns) if columns else 0, dtype)
