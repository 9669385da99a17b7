"""Sums of two float rows with two others at a time: `float_row_products` where there are several activation rows.

Two weight rows and two activation rows make four sums; each vector that is loaded is used twice.  The first level of the
halving tree is taken in registers, the next ones over a small buffer of vectors, so that code stays short:

    level 1: chain v + chain v+16, v = 0..15, stored;  then halving over the stored vectors, and the eight-lane tree

A row of at most 64 values has chains 0..7 only.  Its other chains are +0; adding +0 makes a difference to a sum of nothing
but -0, so it is added once at the end.  Does not know: how weights are stored; they are float32 here.
"""

import numpy as np

from strata.cpu_pool.lane_memory import load_floats, store_floats
from strata.cpu_pool.lane_moves import sum_lanes
from strata.cpu_pool.lanes import fma, splat_float
from strata.numerics.cpu import add, jit
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
SHORT = 64
FAR = 4 * 128
"""Bytes from a lane to its partner in the first level."""
SUM_BYTES = 16 * 32
BUFFER_BYTES = 4 * SUM_BYTES


@jit
def _first_level(v, weights, others, x, y, n):
    """Chain v + chain v+16 of weights.x, weights.y, others.x, others.y; addresses of n float32 each."""
    a = b = c = d = e = f = g = h = splat_float(ZERO)
    i = 8 * v
    while i < n:
        at = 4 * i
        w, z, p, q = load_floats(weights + at), load_floats(others + at), load_floats(x + at), load_floats(y + at)
        a, b, c, d = fma(w, p, a), fma(w, q, b), fma(z, p, c), fma(z, q, d)
        if i + 128 < n:
            at += FAR
            w, z, p, q = load_floats(weights + at), load_floats(others + at), load_floats(x + at), load_floats(y + at)
            e, f, g, h = fma(w, p, e), fma(w, q, f), fma(z, p, g), fma(z, q, h)
        i += WIDE
    return a + e, b + f, c + g, d + h


@jit
def _sum_of(buffer, n_vectors):
    """The halving tree over 8 or 16 stored vectors."""
    if n_vectors > 8:
        for v in range(8):
            store_floats(buffer + 32 * v, load_floats(buffer + 32 * v) + load_floats(buffer + 32 * v + 256))
    q0 = load_floats(buffer) + load_floats(buffer + 128)
    q1 = load_floats(buffer + 32) + load_floats(buffer + 160)
    q2 = load_floats(buffer + 64) + load_floats(buffer + 192)
    q3 = load_floats(buffer + 96) + load_floats(buffer + 224)
    total = sum_lanes((q0 + q2) + (q1 + q3))
    return total if n_vectors > 8 else add(total, ZERO)


@jit
def four_sums(weights, others, x, y, n, buffer):
    """Return weights.x, weights.y, others.x, others.y of n values, a multiple of 8; all addresses, buffer of BUFFER_BYTES."""
    n_vectors = 8 if n <= SHORT else 16
    for v in range(n_vectors):
        a, b, c, d = _first_level(v, weights, others, x, y, n)
        at = buffer + 32 * v
        store_floats(at, a)
        store_floats(at + SUM_BYTES, b)
        store_floats(at + 2 * SUM_BYTES, c)
        store_floats(at + 3 * SUM_BYTES, d)
    first = _sum_of(buffer, n_vectors), _sum_of(buffer + SUM_BYTES, n_vectors)
    return first + (_sum_of(buffer + 2 * SUM_BYTES, n_vectors), _sum_of(buffer + 3 * SUM_BYTES, n_vectors))
