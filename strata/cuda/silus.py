"""silu of several values of a thread, side by side.

The operations of `numerics.functions.silu`.  A division ends in a branch that the compiler moves nothing across; so all exponentials
come first, and their chains overlap.  Does not know: where the values come from.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.on_cuda import exp
from strata.cuda.seam import add, div, jit, mul, sub
from strata.cuda.warps import ONE

ZERO = np.float32(0.0)


@cache
def silus(n: int):
    """Build `apply(values)`: values[m] = silu(values[m]) for m < n."""

    @jit
    def apply(values):
        powers = cuda.local.array(n, np.float32)
        for m in range(n):
            x = values[m]
            powers[m] = exp(x if x < ZERO else sub(ZERO, x))
        for m in range(n):
            x, e = values[m], powers[m]
            values[m] = mul(x, div(e if x < ZERO else ONE, add(ONE, e)))

    return apply
