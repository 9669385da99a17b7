"""silu and sigmoid of several values of a thread, side by side.

The operations of `numerics.functions`.  A division ends in a branch that the compiler moves nothing across; so all exponentials come
first, and their chains overlap.  Does not know: where the values come from.

    sigmoids(n)(values, results)     results[m] = sigmoid(values[m]) for m < n
    silus(n)(values)                 values[m] = silu(values[m])
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.machine.on_cuda import exp
from strata.cuda.machine.seam import add, div, jit, mul, sub
from strata.cuda.machine.warps import ONE

ZERO = np.float32(0.0)


@cache
def sigmoids(n: int):
    """Build `apply(values, results)`."""

    @jit
    def apply(values, results):
        for m in range(n):
            x = values[m]
            results[m] = exp(x if x < ZERO else sub(ZERO, x))
        for m in range(n):
            e = results[m]
            results[m] = div(e if values[m] < ZERO else ONE, add(ONE, e))

    return apply


@cache
def silus(n: int):
    """Build `apply(values)`."""
    sigmoids_of = sigmoids(n)

    @jit
    def apply(values):
        factors = cuda.local.array(n, np.float32)
        sigmoids_of(values, factors)
        for m in range(n):
            values[m] = mul(values[m], factors[m])

    return apply
