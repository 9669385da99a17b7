"""The engine's numerics over whole arrays: small kernels that let tests call helpers which only kernels can call.

Each takes and fills one-dimensional arrays; `values_of(kernel, dtype, *arrays)` allocates the result.
"""

import numpy as np

from strata.numerics.cpu import add, brain, fma, from_bits, half, kernel, mul, round_even, to_half
from strata.numerics.on_cpu import (
    code_of, exp, exp_below, key, magnitude, scale_of, sigmoid, silu, softplus, sum_row_lanes, sum_wide_lanes, tree8,
)


def over_array(function):
    """Compile `out[i] = function(x[i])`."""

    @kernel
    def run(x, out):
        for i in range(x.shape[0]):
            out[i] = function(x[i])

    return run


EXP, SIGMOID, SILU, SOFTPLUS, KEY = (over_array(f) for f in (exp, sigmoid, silu, softplus, key))
TO_HALF, ROUND_EVEN, HALF, BRAIN, FROM_BITS = (over_array(f) for f in (to_half, round_even, half, brain, from_bits))
MAGNITUDE = over_array(magnitude)
FUNCTIONS = {"exp": EXP, "exp_below": over_array(exp_below), "sigmoid": SIGMOID, "silu": SILU, "softplus": SOFTPLUS}


@kernel
def fused(a, b, c, out):
    for i in range(a.shape[0]):
        out[i] = fma(a[i], b[i], c[i])


@kernel
def multiplied_then_added(a, b, c, out):
    for i in range(a.shape[0]):
        out[i] = add(mul(a[i], b[i]), c[i])


@kernel
def written_with_operators(a, b, c, out):
    for i in range(a.shape[0]):
        out[i] = a[i] * b[i] + c[i]


@kernel
def scales(largest, out):
    """largest int32 [n], out float32 [n, 2]: dx and inverse."""
    for i in range(largest.shape[0]):
        out[i, 0], out[i, 1] = scale_of(largest[i])


@kernel
def codes(x, inverse, out):
    for i in range(x.shape[0]):
        out[i] = code_of(x[i], inverse[i])


@kernel
def eight(lanes, out):
    """lanes float32 [n * 8] -> out [n]."""
    for i in range(out.shape[0]):
        at = i * 8
        out[i] = tree8(
            lanes[at], lanes[at + 1], lanes[at + 2], lanes[at + 3], lanes[at + 4], lanes[at + 5], lanes[at + 6], lanes[at + 7]
        )


@kernel
def thirty_two(lanes, out):
    """lanes float32 [n * 32], changed; out [n]."""
    for i in range(out.shape[0]):
        out[i] = sum_row_lanes(lanes, i * 32)


@kernel
def two_hundred_fifty_six(lanes, out):
    """lanes float32 [n * 256], changed; out [n]."""
    for i in range(out.shape[0]):
        out[i] = sum_wide_lanes(lanes, i * 256)


def values_of(run, dtype, *arrays) -> np.ndarray:
    """Call a kernel that fills one value per element of the first array."""
    out = np.empty(arrays[0].shape[0], dtype)
    run(*arrays, out)
    return out


def floats_of(run, *arrays) -> np.ndarray:
    """`values_of` with float32 arrays in and out."""
    return values_of(run, np.float32, *(np.ascontiguousarray(a, np.float32) for a in arrays))
