"""Byte products with VPDPBUSD: unsigned times signed bytes, four products added to a 32-bit lane without saturation.

The contract of the helpers is in `instruction_sets.ByteProducts`.  LLVM emits the AVX-512 or the AVX-VNNI encoding.
Does not know: which CPUs have it.
"""

from strata.cpu_pool.lane_memory import load
from strata.cpu_pool.lanes import WORD_LANES, WORDS, lane_operation, vector_intrinsic
from strata.numerics.cpu import jit

SIGNED_BIAS = 128
TOP_BITS = 0x80808080


@lane_operation(WORDS, WORDS, WORDS, WORDS)
def _add_products(builder, total, w, x):
    return vector_intrinsic(builder, "llvm.x86.avx512.vpdpbusd.256", WORD_LANES, (total, w, x))


@jit
def _add_one(total, w0, w1, w2, w3, at):
    total = _add_products(_add_products(total, w0, load(at)), w1, load(at + 32))
    return _add_products(_add_products(total, w2, load(at + 64)), w3, load(at + 96))


@jit
def _add_four(a, b, c, d, weights, p, q, r, s, n_bytes):
    for at in range(0, n_bytes, 32):
        w = load(weights + at)
        a, b = _add_products(a, w, load(p + at)), _add_products(b, w, load(q + at))
        c, d = _add_products(c, w, load(r + at)), _add_products(d, w, load(s + at))
    return a, b, c, d


def small(largest: int):
    """Return the helpers for unsigned weights: any byte will do."""
    return _add_one, _add_four


def signed():
    """Return the helpers for int8 weights: w + 128 is unsigned."""

    @jit
    def one(total, w0, w1, w2, w3, at):
        return _add_one(total, w0 ^ TOP_BITS, w1 ^ TOP_BITS, w2 ^ TOP_BITS, w3 ^ TOP_BITS, at)

    @jit
    def four(a, b, c, d, weights, p, q, r, s, n_bytes):
        for at in range(0, n_bytes, 32):
            w = load(weights + at) ^ TOP_BITS
            a, b = _add_products(a, w, load(p + at)), _add_products(b, w, load(q + at))
            c, d = _add_products(c, w, load(r + at)), _add_products(d, w, load(s + at))
        return a, b, c, d

    return one, four
