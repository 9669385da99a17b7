"""Sums of products of float rows in the 256-lane order: one at a time, or four that share their rows.

Element i belongs to lane i mod 256, so 32 vectors of eight lanes are 32 chains.  For one sum, a quarter of the tree's last
eight vectors is made at a time, from four chains that stay in registers:

    quarter v (0..7) = (chain v + chain v+16) + (chain v+8 + chain v+24)
    sum = the eight-lane tree of  ((q0 + q4) + (q2 + q6)) + ((q1 + q5) + (q3 + q7))

Two weight rows and two activation rows make four sums, and every vector that is loaded is used twice.  There the first level
of the tree is taken in registers, the next ones over a buffer of vectors, so that code stays short:

    level 1: chain v + chain v+16, v = 0..15, stored;  then halving over the stored vectors, and the eight-lane tree

Rows are of a multiple of eight values.  Does not know: matrices.
"""

import numpy as np

from strata.cpu_pool.lane_memory import load_floats, store_floats
from strata.cpu_pool.lane_moves import sum_lanes
from strata.cpu_pool.lanes import fma, splat_float
from strata.numerics.cpu import jit
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
FLOAT_BYTES = 4
FAR = 128
"""Elements from a lane to its partner in the first level."""
N_VECTORS, VECTOR_BYTES = 16, 32
SUM_BYTES = N_VECTORS * VECTOR_BYTES
BUFFER_BYTES = 4 * SUM_BYTES


def build_one_sum(read, size):
    """Compile `one_sum(weights, x, n) -> float32`; weights of `size` bytes that `read(at)` gives eight of; addresses."""

    @jit
    def quarter(v, weights, x, n):
        a = b = c = d = splat_float(ZERO)
        i = 8 * v
        while i + 192 < n:
            w, u = weights + size * i, x + FLOAT_BYTES * i
            a, b = fma(read(w), load_floats(u), a), fma(read(w + 64 * size), load_floats(u + 256), b)
            c, d = fma(read(w + 128 * size), load_floats(u + 512), c), fma(read(w + 192 * size), load_floats(u + 768), d)
            i += WIDE
        w, u = weights + size * i, x + FLOAT_BYTES * i
        if i < n:
            a = fma(read(w), load_floats(u), a)
        if i + 64 < n:
            b = fma(read(w + 64 * size), load_floats(u + 256), b)
        if i + 128 < n:
            c = fma(read(w + 128 * size), load_floats(u + 512), c)
        return (a + c) + (b + d)

    @jit
    def one_sum(weights, x, n):
        even = (quarter(0, weights, x, n) + quarter(4, weights, x, n)) + (quarter(2, weights, x, n) + quarter(6, weights, x, n))
        odd = (quarter(1, weights, x, n) + quarter(5, weights, x, n)) + (quarter(3, weights, x, n) + quarter(7, weights, x, n))
        return sum_lanes(even + odd)

    return one_sum


@jit
def _first_level(v, weights, others, x, y, n):
    """Chain v + chain v+16 of weights.x, weights.y, others.x, others.y; addresses of n float32 each."""
    a = b = c = d = e = f = g = h = splat_float(ZERO)
    i = 8 * v
    while i < n:
        at = FLOAT_BYTES * i
        w, z, p, q = load_floats(weights + at), load_floats(others + at), load_floats(x + at), load_floats(y + at)
        a, b, c, d = fma(w, p, a), fma(w, q, b), fma(z, p, c), fma(z, q, d)
        if i + FAR < n:
            at += FLOAT_BYTES * FAR
            w, z, p, q = load_floats(weights + at), load_floats(others + at), load_floats(x + at), load_floats(y + at)
            e, f, g, h = fma(w, p, e), fma(w, q, f), fma(z, p, g), fma(z, q, h)
        i += WIDE
    return a + e, b + f, c + g, d + h


@jit
def _sum_stored(at):
    """The halving tree over the sixteen vectors at an address; overwrites some of them."""
    for v in range(0, 8 * VECTOR_BYTES, VECTOR_BYTES):
        store_floats(at + v, load_floats(at + v) + load_floats(at + v + 8 * VECTOR_BYTES))
    q0, q1 = load_floats(at) + load_floats(at + 128), load_floats(at + 32) + load_floats(at + 160)
    q2, q3 = load_floats(at + 64) + load_floats(at + 192), load_floats(at + 96) + load_floats(at + 224)
    return sum_lanes((q0 + q2) + (q1 + q3))


@jit
def four_sums(weights, others, x, y, n, buffer):
    """Return weights.x, weights.y, others.x, others.y of n float32 each; all addresses, buffer of BUFFER_BYTES."""
    for v in range(N_VECTORS):
        a, b, c, d = _first_level(v, weights, others, x, y, n)
        at = buffer + VECTOR_BYTES * v
        store_floats(at, a)
        store_floats(at + SUM_BYTES, b)
        store_floats(at + 2 * SUM_BYTES, c)
        store_floats(at + 3 * SUM_BYTES, d)
    first = _sum_stored(buffer), _sum_stored(buffer + SUM_BYTES)
    return first + (_sum_stored(buffer + 2 * SUM_BYTES), _sum_stored(buffer + 3 * SUM_BYTES))
