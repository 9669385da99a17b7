"""What a host operation is for the tests: rows in, rows out, and three other ways to compute the same.

A `RowOperation` works on arrays whose first dimension is rows; row i's results depend on row i of every input alone (state
such as cells or memories counts as an input: row i has slot i).  The checks return what they found instead of asserting,
so that planted faults can show that they find something.  Does not know: which operations there are (`cases.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.unit.numerics.bounds import FLOAT32_STEPS, bits

ROW_COUNTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
MOST_ROWS = ROW_COUNTS[-1]

Rows = dict[str, np.ndarray]
Results = tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class RowOperation:
    """`make(generator, n)` gives inputs; `compute(control, **inputs)` is the engine's, `stranger` and `oracle` (float64,
    None where bits are all there is to check) are the other ways; `wrong` names functions in orders that must differ."""

    name: str
    make: Callable[[np.random.Generator, int], Rows]
    compute: Callable[..., Results]
    stranger: Callable[..., Results]
    oracle: Callable[..., Results] | None = None
    bound: float = FLOAT32_STEPS
    wrong: dict[str, Callable[..., Results]] = field(default_factory=dict)

    def inputs(self, n: int, seed: int = 7) -> Rows:
        """Inputs of n rows."""
        return self.make(np.random.default_rng(seed), n)


def some(rows: Rows, which: slice) -> Rows:
    """Copies of a range of rows of every input."""
    return {name: values[which].copy() for name, values in rows.items()}


def differing(found: Results, expected: Results) -> str | None:
    """Describe the first result whose bits differ, None where all are equal."""
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {number} is {a.dtype} {a.shape}, not {b.dtype} {b.shape}"
        unequal = bits(a) != bits(b)
        if unequal.any():
            at = tuple(int(i) for i in np.argwhere(unequal)[0])
            return f"result {number} at {at}: {a[at]!r}, not {b[at]!r} ({int(unequal.sum())} of {a.size} differ)"
    return None


def row_of(results: Results, row: int) -> Results:
    return tuple(np.ascontiguousarray(values[row : row + 1]) for values in results)


def threshold_fault(operation: RowOperation, control: np.ndarray) -> str | None:
    """Find a row count at which the first or the last row differs from the row alone, or any row from the widest run."""
    rows = operation.inputs(MOST_ROWS)
    widest = operation.compute(control, **some(rows, slice(None)))
    for n in ROW_COUNTS:
        found = operation.compute(control, **some(rows, slice(n)))
        for row in {0, n - 1}:
            lone = operation.compute(control, **some(rows, slice(row, row + 1)))
            if fault := differing(row_of(found, row), lone):
                return f"{operation.name}: row {row} of {n} is not the lone row: {fault}"
        if fault := differing(found, tuple(values[:n] for values in widest)):
            return f"{operation.name}: {n} rows are not the first of {MOST_ROWS}: {fault}"
    return None


POISONS = {
    "NaN": {"f": np.nan, "u": 0x7E00, "i": 127},
    "huge": {"f": 3.3e38, "u": 0x7BFF, "i": -127},
    "infinite": {"f": -np.inf, "u": 0xFC00, "i": 127},
}
"""What neighbours are filled with, by kind of array: float32, half bits, int8 codes.  Other integers are indices."""


def poisoned(rows: Rows, kept: int, poison: dict) -> Rows:
    """Inputs in which every row but one is filled with a poison."""
    others = np.arange(len(next(iter(rows.values())))) != kept
    result = some(rows, slice(None))
    for values in result.values():
        if values.dtype in (np.float32, np.uint16, np.int8):
            values[others] = poison[values.dtype.kind]
    return result


def neighbour_fault(operation: RowOperation, control: np.ndarray) -> str | None:
    """Find a poison in the neighbouring rows that changes a bit of the row between them."""
    rows, kept = operation.inputs(9), 4
    expected = operation.compute(control, **some(rows, slice(kept, kept + 1)))
    for name, poison in POISONS.items():
        found = row_of(operation.compute(control, **poisoned(rows, kept, poison)), kept)
        if fault := differing(found, expected):
            return f"{operation.name}: a neighbour that is {name} changes the row: {fault}"
    return None
