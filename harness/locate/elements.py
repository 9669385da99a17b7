"""Elements: two records' values, the first in which they differ, and by how much.

The distance of two floats is the number of representable values between them; of integers it is their difference.
Does not know: where the records came from.
"""

import numpy as np

from harness.ledger.ledger import Elements
from harness.locate.finding import ElementDifference

HALF = np.dtype(np.uint16)
KINDS = {np.dtype(np.float32): "float32", HALF: "half"}


def first_difference(left: Elements, right: Elements) -> ElementDifference | None:
    """Return the first element that differs, None where none does or the records' sizes differ."""
    a, b = left.values.reshape(-1), right.values.reshape(-1)
    if a.shape != b.shape or a.dtype != b.dtype:
        return None
    bits_a, bits_b = (values.view(f"u{values.itemsize}") for values in (a, b))
    differing = np.flatnonzero(bits_a != bits_b)
    if not len(differing):
        return None
    at = int(differing[0])
    index = tuple(int(i) for i in np.unravel_index(at, left.values.shape))
    cell = int(right.cells[index[0]]) if right.cells is not None else None
    digits = 2 * a.itemsize
    return ElementDifference(
        index[1:] if len(left.values) == 1 else index, cell, KINDS.get(a.dtype, str(a.dtype)), _shown(a[at]), _shown(b[at]),
        f"0x{int(bits_a[at]):0{digits}x}", f"0x{int(bits_b[at]):0{digits}x}", distance(a[at : at + 1], b[at : at + 1]), len(differing), a.size,
    )


def distance(a: np.ndarray, b: np.ndarray) -> int:
    """Return how far apart two values of one type are, in last places."""
    return abs(_ordered(a) - _ordered(b))


def _ordered(value: np.ndarray) -> int:
    """An integer that rises with the value."""
    if value.dtype not in KINDS:
        return int(value[0])
    size = 8 * value.itemsize
    bits = int(value.view(f"u{value.itemsize}")[0])
    sign = 1 << (size - 1)
    return -(bits - sign) if bits & sign else bits


def _shown(value: np.generic) -> str:
    if value.dtype == HALF:
        return f"{float(value.view(np.float16)):.9g}"
    return f"{float(value):.9g}" if value.dtype == np.float32 else str(int(value))
