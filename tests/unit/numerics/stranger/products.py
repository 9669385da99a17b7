"""Section 9: products with quantised and float matrices, and table look-ups.

A quantised matrix is its rows' bytes uint8 [n_out, row bytes].  Lanes are parameters for wrong orders.
"""

import numpy as np

from tests.unit.numerics.document import format_table
from tests.unit.numerics.stranger.arithmetic import F32, brain, fma, half
from tests.unit.numerics.stranger.blocks import Parts, has_offset
from tests.unit.numerics.stranger.grids import decode
from tests.unit.numerics.stranger.sums import codes, dot, tree

WIDENED = {"BF16": brain, "F16": half, "F32": lambda bits: np.ascontiguousarray(bits, np.uint32).view(F32)}


def decode_rows(name: str, rows) -> Parts:
    """Decode all groups of a matrix, row after row."""
    return decode(name, rows.reshape(-1, int(format_table()[name]["bytes"])))


def coded(name: str, rows, coded_x, n_lanes: int = 8) -> np.ndarray:
    """Rows of codes (codes, scales, sums) times a quantised matrix: float32 [rows, n_out]."""
    x, scales, sums = coded_x
    p, n_rows, n_groups, n_out = decode_rows(name, rows), x.shape[0], scales.shape[1], rows.shape[0]
    weights = (p.q * np.repeat(p.s, 16, axis=1)).reshape(n_out, n_groups, 32).astype(np.float64)
    d, offset = p.d.reshape(n_out, n_groups), p.offset.reshape(n_out, n_groups)
    lanes = np.zeros((n_rows, n_out, n_lanes), F32)
    for g in range(n_groups):
        exact = (x[:, 32 * g : 32 * g + 32].astype(np.float64) @ weights[:, g].T).astype(F32)  # integers below 2^24
        lane = lanes[:, :, g % n_lanes]
        lane[...] = fma(d[:, g] * scales[:, g, None], exact, lane)
        if has_offset(name):
            lane[...] = fma(offset[:, g] * scales[:, g, None], sums[:, g, None].astype(F32), lane)
    return tree(lanes)


def wide(name: str, rows, x) -> np.ndarray:
    """Float32 rows times a quantised matrix, mode `wide`: 8 lanes of 32 weights advance side by side."""
    values = decode_rows(name, rows).values(has_offset(name)).reshape(rows.shape[0], -1)
    lanes = np.zeros((x.shape[0], rows.shape[0], 8), F32)
    for at in range(0, x.shape[1], 256):
        w, a = (part[:, at : at + 256].reshape(len(part), -1, 32) for part in (values, np.asarray(x, F32)))
        for i in range(32):
            lanes[:, :, : w.shape[1]] = fma(w[None, :, :, i], a[:, None, :, i], lanes[:, :, : w.shape[1]])
    return tree(lanes)


def floats(type_name: str, weights, x, n_lanes: int = 256) -> np.ndarray:
    """Float32 rows times a float matrix given as bits [n_out, n_in]."""
    values = WIDENED[type_name](weights)
    return np.stack([dot(values, row, n_lanes) for row in np.asarray(x, F32)])


def times(type_name: str, rows, x, mode: str = "canonical", span: int = 32, as_halves: bool = False) -> np.ndarray:
    """A tensor's product with float32 rows, whatever its type."""
    if type_name in WIDENED:
        return floats(type_name, rows, x)
    return wide(type_name, rows, x) if mode == "wide" else coded(type_name, rows, codes(x, span, as_halves))


def look_up(type_name: str, rows) -> np.ndarray:
    """Rows of a table as float32 [rows, columns]."""
    if type_name in WIDENED:
        return WIDENED[type_name](rows)
    return decode_rows(type_name, rows).values(has_offset(type_name)).reshape(rows.shape[0], -1)
