"""Matrix products with float weights (bfloat16, float16 or float32): 256 lanes, as plain loops.

Element i of a row belongs to lane i mod 256; a lane is a chain of fused multiply-adds in ascending i from +0; the halving
tree sums the lanes.  Activations are float32 in every rounding mode.  This is the specification; for rows of a multiple of
eight values `strata.cpu_pool.float_row_products` computes the same bits in vectors.  Does not know: what the products are
for.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.fork import fork
from strata.numerics.cpu import brain, fma, half, jit, kernel
from strata.numerics.on_cpu import sum_wide_lanes
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
GRAIN_WEIGHTS = 4096


@jit
def _from_brain(value):
    return brain(np.uint32(value))


@jit
def _from_half(value):
    return half(np.uint32(value))


@jit
def _from_float(value):
    return value


WIDEN = {"BF16": _from_brain, "F16": _from_half, "F32": _from_float}


@cache
def float_product(type_name: str):
    """Return kernel(control, weights, x, out): weights uint16 or float32 [n_out, n_in], x float32 [rows, n_in], out [rows, n_out]."""
    widen = WIDEN[type_name]

    @jit
    def body(begin, end, arguments):
        weights, x, out = arguments
        n_in, n_rows = x.shape[1], x.shape[0]
        values, lanes = np.empty(n_in, np.float32), np.empty(WIDE, np.float32)
        for n in range(begin, end):
            for i in range(n_in):
                values[i] = widen(weights[n, i])
            for row in range(n_rows):
                for lane in range(WIDE):
                    lanes[lane] = ZERO
                for i in range(n_in):
                    lanes[i % WIDE] = fma(values[i], x[row, i], lanes[i % WIDE])
                out[row, n] = sum_wide_lanes(lanes, 0)

    @kernel
    def run(control, weights, x, out):
        fork(control, body, weights.shape[0], 1 + GRAIN_WEIGHTS // weights.shape[1], (weights, x, out))

    return run
