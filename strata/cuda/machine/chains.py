"""Long chains over values in shared memory, read ahead: a read takes as long as several fused multiply-adds of a chain.

    squares(n) -> chain(at, thread)      a lane's chain of squares in the 32-lane order of norms; thread is the lane
    products(n) -> chain(a, b, lane)     a lane's chain of products in the eight-lane order of dot8

at, a, b are shared addresses; n is the number of values, a multiple of the lanes.  Terms ascend and start from +0, as everywhere.  Does not know: trees, what
is summed.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.machine.addresses import shared_float
from strata.cuda.machine.seam import fma, jit
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
    def chain(at, thread):
        at = at + 4 * thread
        held, total = cuda.local.array(AHEAD, np.float32), ZERO
        for begin in range(0, n_whole, AHEAD):
            for m in range(AHEAD):
                held[m] = shared_float(at + 4 * ROW * (begin + m))
            for m in range(AHEAD):
                total = fma(held[m], held[m], total)
        for m in range(n_whole, per_lane):
            value = shared_float(at + 4 * ROW * m)
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
        a, b = a + 4 * lane, b + 4 * lane
        left, right, total = cuda.local.array(AHEAD, np.float32), cuda.local.array(AHEAD, np.float32), ZERO
        for begin in range(0, n_whole, AHEAD):
            for m in range(AHEAD):
                behind = 4 * EIGHT * (begin + m)
                left[m], right[m] = shared_float(a + behind), shared_float(b + behind)
            for m in range(AHEAD):
                total = fma(left[m], right[m], total)
        for m in range(n_whole, per_lane):
            behind = 4 * EIGHT * m
            total = fma(shared_float(a + behind), shared_float(b + behind), total)
        return total

    return chain
