"""Byte products with VPDPBUSD: unsigned times signed bytes, four products added to a 32-bit lane without saturation.

The contract of the helpers is in `instruction_sets.ByteProducts`.  LLVM emits the AVX-512 or the AVX-VNNI encoding.
Does not know: which CPUs have it.
"""

import numpy as np

from strata.cpu_pool.lane_memory import byte_table, load
from strata.cpu_pool.lanes import WORD_LANES, WORDS, lane_operation, splat, vector_intrinsic
from strata.cpu_pool.tiles import keep_words
from strata.numerics.cpu import jit

SIGNED_BIAS = 128
TOP_BITS, NOTHING = 0x80808080, np.int32(0)


@lane_operation(WORDS, WORDS, WORDS, WORDS)
def _add_products(builder, total, w, x):
    return vector_intrinsic(builder, "llvm.x86.avx512.vpdpbusd.256", WORD_LANES, (total, w, x))


@jit
def _add_one(total, w0, w1, w2, w3, at):
    total = _add_products(_add_products(total, w0, load(at)), w1, load(at + 32))
    return _add_products(_add_products(total, w2, load(at + 64)), w3, load(at + 96))


@jit
def add_both(u, v, pages, n_bytes):
    p, q, r, s = pages
    a = b = c = d = e = f = g = h = splat(NOTHING)
    for at in range(0, n_bytes, 32):
        w, x = load(u + at), load(v + at)
        y = load(p + at)
        a, e = _add_products(a, w, y), _add_products(e, x, y)
        y = load(q + at)
        b, f = _add_products(b, w, y), _add_products(f, x, y)
        y = load(r + at)
        c, g = _add_products(c, w, y), _add_products(g, x, y)
        y = load(s + at)
        d, h = _add_products(d, w, y), _add_products(h, x, y)
    return (a, b, c, d), (e, f, g, h)


def small(largest: int):
    """Return the helpers for unsigned weights: any byte will do."""
    return _add_one, add_both


def signed():
    """Return the helpers for int8 weights: w + 128 is unsigned, as it is kept."""

    @jit
    def one(total, w0, w1, w2, w3, at):
        return _add_one(total, w0 ^ TOP_BITS, w1 ^ TOP_BITS, w2 ^ TOP_BITS, w3 ^ TOP_BITS, at)

    return one, add_both


@jit
def keep_signed(words, at):
    """Store eight vectors of int8 with 128 added, one after the other."""
    w0, w1, w2, w3, w4, w5, w6, w7 = words
    low, high = (w0 ^ TOP_BITS, w1 ^ TOP_BITS, w2 ^ TOP_BITS, w3 ^ TOP_BITS), (w4 ^ TOP_BITS, w5 ^ TOP_BITS, w6 ^ TOP_BITS, w7 ^ TOP_BITS)
    keep_words(low + high, at)


def build_keep_levels(levels):
    """Compile what `keep_signed` does, for vectors of codes 0..15 that stand for these int8 levels."""
    unsigned = byte_table([level + 128 for level in levels])

    @jit
    def keep(codes, at):
        keep_words(unsigned(codes), at)

    return keep
