"""What a thread of a float tile does with 8 rows x 8 outputs, whatever the tile: weights widened, one step, sums parked.

A step is one element of eight rows and of eight outputs, read from shared memory in pieces of four floats; `places` are the four pieces'
addresses in a step's rows and outputs.  sums[8 o + r] is of output o and row r.  Does not know: tiles, lanes.
"""

import numpy as np

from strata.cuda.machine.addresses import shared_float, shared_four_floats, store_shared_float
from strata.cuda.machine.seam import add, brain, fma, half, jit, load_four_floats, load_two_words

ZERO = np.float32(0.0)
SIDE, THREADS = 8, 256
N_SUMS = SIDE * SIDE
PARKED_BYTES = 4 * N_SUMS * THREADS
"""Shared memory where every thread parks its sums of one level."""
LOW_HALF = np.uint32(0xFFFF)


@jit
def _four_brains(raw, at):
    a, b = load_two_words(raw, at)
    a, b = np.uint32(a), np.uint32(b)
    return brain(a & LOW_HALF), brain(a >> 16), brain(b & LOW_HALF), brain(b >> 16)


@jit
def _four_halves(raw, at):
    a, b = load_two_words(raw, at)
    a, b = np.uint32(a), np.uint32(b)
    return half(a & LOW_HALF), half(a >> 16), half(b & LOW_HALF), half(b >> 16)


WIDEN_FOUR = {"BF16": (_four_brains, 2), "F16": (_four_halves, 2), "F32": (load_four_floats, 4)}
"""By type name: `load(raw, byte) -> four floats`, and bytes per value."""


@jit
def read_step(x_at, w_at, places, x, w):
    """One element of 8 rows and of 8 outputs."""
    low_rows, high_rows, low_outputs, high_outputs = places
    x[0], x[1], x[2], x[3] = shared_four_floats(x_at + low_rows)
    w[0], w[1], w[2], w[3] = shared_four_floats(w_at + low_outputs)
    x[4], x[5], x[6], x[7] = shared_four_floats(x_at + high_rows)
    w[4], w[5], w[6], w[7] = shared_four_floats(w_at + high_outputs)


def whole_step(fresh: bool):
    """Build `step(x_at, w_at, places, x, w, sums)`: one element of 8 rows x 8 outputs; sums[8 o + r].  A lane's first step is `fresh`, from +0."""

    @jit
    def step(x_at, w_at, places, x, w, sums):
        read_step(x_at, w_at, places, x, w)
        for o in range(SIDE):
            for r in range(SIDE):
                sums[SIDE * o + r] = fma(w[o], x[r], ZERO if fresh else sums[SIDE * o + r])

    return step


@jit
def multiply(x, w, sums):
    """What `next_step` does with the values that it has read."""
    for o in range(SIDE):
        for r in range(SIDE):
            sums[SIDE * o + r] = fma(w[o], x[r], sums[SIDE * o + r])


def half_step(fresh: bool, upper: bool, to: int):
    """Build the same for the lower or upper four outputs; sums[to + 8 o + r]."""

    @jit
    def step(x_at, w_at, places, x, w, sums):
        low_rows, high_rows, low_outputs, high_outputs = places
        x[0], x[1], x[2], x[3] = shared_four_floats(x_at + low_rows)
        w[0], w[1], w[2], w[3] = shared_four_floats(w_at + (high_outputs if upper else low_outputs))
        x[4], x[5], x[6], x[7] = shared_four_floats(x_at + high_rows)
        for o in range(SIDE // 2):
            for r in range(SIDE):
                sums[to + SIDE * o + r] = fma(w[o], x[r], ZERO if fresh else sums[to + SIDE * o + r])

    return step


next_step = whole_step(False)


@jit
def clear(sums):
    for v in range(N_SUMS):
        sums[v] = ZERO


@jit
def park(at, sums):
    """Leave a thread's sums in shared memory; `at` is this thread's place."""
    for v in range(N_SUMS):
        store_shared_float(at + 4 * THREADS * v, sums[v])


@jit
def add_parked(at, sums):
    for v in range(N_SUMS):
        sums[v] = add(shared_float(at + 4 * THREADS * v), sums[v])
