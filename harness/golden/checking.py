"""Checking golden records: read and continue again, compare every hash, and name the operation that changed.

A check runs one or more ways (chunk sizes, splits, slots); each gives a result of its own.  Where a row differs, the
operations are hashed again and the first that differs, in the order of dataflow, is named in plain words: everything above
it is unchanged.  Does not know: reports.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.golden.document import Golden, GoldenItem, fingerprint
from harness.golden.recording import continue_items, operation_hashes, read_items
from harness.ledger.points import in_words, point_named
from harness.workload import Item
from strata.batch.settings import EngineSettings
from strata.errors import UsageError
from strata.model.model import Model
from strata.numerics.rotary import fingerprint as rotary_fingerprint
from strata.numerics.rotary import rotary_table


@dataclass(frozen=True, slots=True)
class Way:
    """One way of running the check: its name, and what it changes in the settings."""

    name: str
    settings: EngineSettings


@dataclass(frozen=True, slots=True)
class RowDifference:
    """The first row of an item that differs: `row` counts the prompt's rows, then the continuation's."""

    label: str
    row: int
    detail: str


@dataclass(frozen=True, slots=True)
class WayResult:
    """What one way gave: rows compared and equal, differences, and the operation that changed (empty: none)."""

    way: str
    n_rows: int
    n_equal: int
    differences: tuple[RowDifference, ...]
    operation: str
    source: str
    seconds: float

    @property
    def is_exact(self) -> bool:
        return self.n_equal == self.n_rows and not self.differences


def ways(settings: EngineSettings, n_layers: int, level: int) -> tuple[Way, ...]:
    """Return the ways of a level: 1 as the settings say; 2 other chunks, splits, slots, groups and threads too."""
    first = Way("as set", settings)
    if level == 1:
        return (first,)
    third = max(1, n_layers // 3)
    points = tuple(sorted({third, min(2 * third, n_layers - 1)}))
    devices = ",".join([settings.devices.split(",")[0]] * (len(points) + 1))
    split = {"layer_split": points, "devices": devices}
    changes = {
        "chunks of 7": {"prefill": 7}, "chunks of 32": {"prefill": 32}, "chunks of 256": {"prefill": 256},
        "one thread": {"threads": 1}, "stages": split, "stages, chunks of 100": {**split, "prefill": 100},
        "one device": {"layer_split": points[:1], "split_device": (0,)}, "slots": {"batch": 8, "prefill": 64},
        "pipelined groups": {**split, "batch": 8, "batch_groups": 2},
    }
    return (first, *(Way(name, replace(settings, **change)) for name, change in changes.items()))


def require_same_model(golden: Golden, model: Model, context: int) -> None:
    """Raise UsageError where a golden record is of another model or another rotary table."""
    if fingerprint(model) != golden.model:
        raise UsageError(f"golden record of model {golden.model}", f"the model given is {fingerprint(model)}", "check the model it was made from")
    table = rotary_table(model.config.rope_base, model.config.rope_dims, context)
    if rotary_fingerprint(table) != golden.rotary:
        raise UsageError(f"golden record with rotary table {golden.rotary}", "this build computes another table", "look at strata.numerics.rotary")


def check_all(golden: Golden, model: Model, chosen: Sequence[Way]) -> Iterator[WayResult]:
    """Check a record in each way."""
    for way in chosen:
        yield check_way(golden, model, way)


def check_way(golden: Golden, model: Model, way: Way) -> WayResult:
    """Check a record in one way."""
    started = time.perf_counter()
    items = tuple(Item(item.label, item.prompt, len(item.tokens)) for item in golden.items)
    read, written = list(read_items(model, way.settings, items)), continue_items(model, way.settings, items)
    found, n_rows, n_equal = [], 0, 0
    for item, rows, (tokens, hashes) in zip(golden.items, read, written, strict=True):
        compared, equal, difference = _compare(item, rows, tokens, hashes)
        n_rows, n_equal = n_rows + compared, n_equal + equal
        found += [difference] if difference else []
    operation, source = _changed_operation(golden, model, way) if found else ("", "")
    return WayResult(way.name, n_rows, n_equal, tuple(found), operation, source, time.perf_counter() - started)


def _compare(item: GoldenItem, read, tokens, hashes) -> tuple[int, int, RowDifference | None]:
    """Return (rows compared, rows equal, the first difference); a continuation counts up to its first other token."""
    equal, first = 0, None
    for row, (expected, got) in enumerate(zip(item.read, read, strict=True)):
        equal += expected == got
        if expected != got and first is None:
            first = RowDifference(item.label, row, f"logits at position {row} hash to {got}, recorded {expected}")
    n_rows = len(item.read)
    for index, (expected, got, token, recorded) in enumerate(zip(item.written, hashes, tokens, item.tokens, strict=False)):
        n_rows += 1
        equal += expected == got and token == recorded
        if first is None and (expected != got or token != recorded):
            first = RowDifference(item.label, len(item.read) + index, f"answer token {index}: {token} with hash {got}, recorded {recorded} with {expected}")
        if token != recorded:
            break
    return n_rows, equal, first


def _changed_operation(golden: Golden, model: Model, way: Way) -> tuple[str, str]:
    """Return (the first operation that changed, in plain words, and where it is computed)."""
    items = [Item(item.label, item.prompt, 0) for item in golden.items if item.label in golden.operation_items]
    now = operation_hashes(model, way.settings, items)
    for at, expected in golden.operations.items():
        if now.get(at) != expected:
            layer, point = at
            return in_words(point, layer), point_named(point).source
    return "no operation, on the prompts whose operations were recorded", ""
