"""Long chains over values in shared memory, read ahead: a read takes as long as several fused multiply-adds of a chain.

    squares(n) -> chain(values, thread)      a lane's chain of squares in the 32-lane order of norms; thread is the lane
    products(n) -> chain(a, b, lane)         a lane's chain of products in the eight-lane order of dot8

n is the number of values, a multiple of the lanes.  Terms ascend and start from +0, as everywhere.  Does not know: trees, what
is summed.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.seam import fma, jit
from strata.numerics.orders import EIGHT, ROW

ZERO = np.float32(0.0)
AHEAD = 16
"""Values that a lane reads before it uses the first."""


@cache
def squares(n: int):
    """Build the chain of squares over n values."""
    per_lane = n // ROW
    n_whole = per_lane // AHEAD * AHEAD

    @jit
    def chain(values, thread):
        held, total = cuda.local.array(AHEAD, np.float32), ZERO
        for begin in range(0, n_whole, AHEAD):
            for m in range(AHEAD):
                held[m] = values[ROW * (begin + m) + thread]
            for m in range(AHEAD):
                total = fma(held[m], held[m], total)
        for m in range(n_whole, per_lane):
            value = values[ROW * m + thread]
            total = fma(value, value, total)
        return total

    return chain


@cache
def products(n: int):
    """Build the chain of products over n pairs of values."""
    per_lane = n // EIGHT
    n_whole = per_lane // AHEAD * AHEAD

    @jit
    def chain(a, b, lane):
        left, right, total = cuda.local.array(AHEAD, np.float32), cuda.local.array(AHEAD, np.float32), ZERO
        for begin in range(0, n_whole, AHEAD):
            for m in range(AHEAD):
                at = EIGHT * (begin + m) + lane
                left[m], right[m] = a[at], b[at]
            for m in range(AHEAD):
                total = fma(left[m], right[m], total)
        for m in range(n_whole, per_lane):
            at = EIGHT * m + lane
            total = fma(a[at], b[at], total)
        return total

    return chain
