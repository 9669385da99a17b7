"""Matrix products with float weights (bfloat16, float16 or float32): 256 lanes.

Element i of a row belongs to lane i mod 256; a lane is a chain of fused multiply-adds in ascending i from +0; the halving
tree sums the lanes.  A row of at most 64 values leaves the other lanes at +0; adding +0 twice is adding it once (it only
turns -0 into +0), so such a row takes one addition of +0 and the tree over 64 lanes.  Rows of 64 or a multiple of 256 values are
summed as vectors (`strata.host.float_vectors`), others by plain loops; the bits are the same.  Activations are float32 in every
rounding mode.  Does not know: what the products are for.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.fork import fork
from strata.host.float_vectors import short_sum, wide_sum
from strata.host.vectors import halving_sum64, halving_sum256
from strata.numerics.cpu import add, brain, fma, half, jit, kernel
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
SHORT = 64
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


@jit
def _long_sum(values, x, row, n_in, lanes):
    """The sum for a row of any length."""
    whole = n_in - n_in % WIDE
    for lane in range(WIDE):
        lanes[lane] = ZERO
    for at in range(0, whole, WIDE):
        for lane in range(WIDE):
            lanes[lane] = fma(values[at + lane], x[row, at + lane], lanes[lane])
    for lane in range(n_in - whole):
        lanes[lane] = fma(values[whole + lane], x[row, whole + lane], lanes[lane])
    return halving_sum256(lanes)


@cache
def float_product(type_name: str):
    """Return kernel(control, weights, x, out): weights uint16 or float32 [n_out, n_in], x float32 [rows, n_in], out [rows, n_out]."""
    widen, wide, short = WIDEN[type_name], wide_sum(type_name), short_sum(type_name)

    @jit
    def body(begin, end, arguments):
        weights, x, out = arguments
        n_in, n_rows = x.shape[1], x.shape[0]
        values, lanes = np.empty(n_in, np.float32), np.empty(WIDE, np.float32)
        lanes[:] = ZERO
        for n in range(begin, end):
            if n_in % WIDE == 0:
                for row in range(n_rows):
                    out[row, n] = wide(weights, n, x, row, n_in)
                continue
            if n_in == SHORT:
                for row in range(n_rows):
                    out[row, n] = short(weights, n, x, row, n_in)
                continue
            for i in range(n_in):
                values[i] = widen(weights[n, i])
            for row in range(n_rows):
                if n_in <= SHORT:
                    for lane in range(n_in):
                        lanes[lane] = add(fma(values[lane], x[row, lane], ZERO), ZERO)
                    out[row, n] = halving_sum64(lanes)
                else:
                    out[row, n] = _long_sum(values, x, row, n_in, lanes)

    @kernel
    def run(control, weights, x, out):
        fork(control, body, weights.shape[0], 1 + GRAIN_WEIGHTS // weights.shape[1], (weights, x, out))

    return run
