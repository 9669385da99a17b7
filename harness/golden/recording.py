"""Making what a golden file holds: read prompts, continue them, hash every row and every operation.

Prompts are read through `Engine.score`, in whatever chunks, stages and devices the settings say, and continued together in
the engine's slots.  Operations are seen by a ledger and summed per point, so that no order of rows, chunk or stage matters.
Does not know: files, comparisons.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from harness.golden.document import DIGITS, GoldenItem
from harness.ledger.ledger import Ledger
from harness.ledger.points import point_named, rank_of
from harness.ledger.records import read_records
from harness.workload import Item
from strata.batch.engine import Engine
from strata.batch.requests import Request
from strata.batch.settings import EngineSettings
from strata.model.model import Model
from strata.numerics.hashing import FIRST, GOLDEN, SECOND, SHIFT_27, SHIFT_30, SHIFT_31, hex_of, row_hashes

Rows = tuple[str, ...]


def read_items(model: Model, settings: EngineSettings, items: Sequence[Item]) -> Iterator[Rows]:
    """Yield, for each item, the hashes of the logits at every position of its prompt."""
    with Engine(model, settings) as engine:
        for item in items:
            yield tuple(hex_of(pair)[:DIGITS] for pair in row_hashes(engine.score(item.prompt)))


def continue_items(model: Model, settings: EngineSettings, items: Sequence[Item]) -> list[tuple[tuple[int, ...], Rows]]:
    """Return, for each item, the tokens of its greedy continuation and the hashes of their rows."""
    with Engine(model, settings) as engine:
        answers = engine.generate([Request(item.prompt, item.max_new) for item in items]).answers
    return [(answer.tokens, tuple(e.row.digest[:DIGITS] for e in answer.emitted)) for answer in answers]


def golden_items(model: Model, settings: EngineSettings, items: Sequence[Item]) -> tuple[GoldenItem, ...]:
    """Return the items with all their hashes."""
    read = list(read_items(model, settings, items))
    written = continue_items(model, settings, items)
    return tuple(
        GoldenItem(item.label, item.prompt, rows, tokens, hashes)
        for item, rows, (tokens, hashes) in zip(items, read, written, strict=True)
    )


def operation_hashes(model: Model, settings: EngineSettings, items: Sequence[Item]) -> dict[tuple[int, str], str]:
    """Return a hash per (layer, point), in the order of dataflow, over all rows while the items' prompts are read."""
    sums: dict[tuple[int, str], np.ndarray] = {}
    for item in items:
        ledger = Ledger(level=2)
        with Engine(model, settings, ledger) as engine:
            engine.score(item.prompt)
        _add(sums, ledger)
    ordered = sorted(sums, key=lambda at: rank_of(at[1], at[0]))
    return {at: hex_of(sums[at])[:DIGITS] for at in ordered}


def _add(sums: dict[tuple[int, str], np.ndarray], ledger: Ledger) -> None:
    """Add a ledger's records: each record's hash, mixed with its row's prefix and its part."""
    records = read_records([ledger])
    layers, parts = records.layer, (records.part.astype(np.int64) + 1).astype(np.uint64)
    mixed = _mixed(records.hash + (records.of_rows("prefix") + parts * GOLDEN)[:, None])
    for number, point in enumerate(records.names):
        if point_named(point).is_state or point_named(point).is_read:
            continue
        for layer in np.unique(layers[records.point == number]):
            chosen = mixed[(records.point == number) & (layers == layer)]
            at = (int(layer), point)
            sums[at] = sums.get(at, np.zeros(2, np.uint64)) + chosen.sum(axis=0, dtype=np.uint64)


def _mixed(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser on uint64 arrays, so that hashes of different rows do not cancel in a sum."""
    x = (x ^ (x >> SHIFT_30)) * FIRST
    x = (x ^ (x >> SHIFT_27)) * SECOND
    return x ^ (x >> SHIFT_31)
