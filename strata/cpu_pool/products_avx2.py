"""Byte products with VPMADDUBSW: unsigned times signed bytes, two products in a saturating 16-bit sum.

Nothing saturates or wraps: activations are at most 127 in magnitude, so a pair of products with weights up to L is at most
2 * 127 * L, and n vectors' pairs fit 16 bits together where n * 254 * L <= 32767.

    largest weight      vectors a 16-bit sum        its largest magnitude
    15                  8                           30480
    31 (L <= 32)        4                           31496
    64                  2                           32512
    128                 1                           32512

A signed weight that meets one row is split into its magnitude, the unsigned operand (so that -128 is one), and its sign,
which turns the activation.  A kept one lies in its tile as 128 more than itself, 0 .. 255, in two planes of four bits, so
that each plane's eight vectors share a sum: twice the VPMADDUBSW, but no sign to turn and an eighth of the VPMADDWD.  The
high plane counts sixteenfold when it is widened.

With two rows of weights against four of activations every partial sum is `_held`: otherwise LLVM adds in trees, whose
branches do not fit sixteen registers.  The contract of the helpers is in `instruction_sets.ByteProducts`.
Does not know: which CPUs have it.
"""

import numpy as np
from llvmlite import ir

from strata.cpu_pool.lane_memory import byte_table, load
from strata.cpu_pool.lanes import BYTE, WORD_LANES, WORDS, lane_operation, splat, vector_intrinsic
from strata.cpu_pool.tiles import HIGH_PLANE, keep_words
from strata.numerics.cpu import inlined, jit

SIGNED_BIAS, NOTHING = 0, np.int32(0)
NIBBLES, EIGHTS = 0x0F0F0F0F, 0x08080808
LARGEST_SHORT, LARGEST_ACTIVATION = 32767, 127
BYTES, SHORTS = ir.VectorType(BYTE, 32), ir.VectorType(ir.IntType(16), 16)


@lane_operation(WORDS, WORDS, WORDS)
def _pairs(builder, w, x):
    """Sixteen 16-bit sums of two products each."""
    operands = [builder.bitcast(value, BYTES) for value in (w, x)]
    return builder.bitcast(vector_intrinsic(builder, "llvm.x86.avx2.pmadd.ub.sw", SHORTS, operands), WORD_LANES)


@lane_operation(WORDS, WORDS, WORDS)
def _add_shorts(builder, a, b):
    return builder.bitcast(builder.add(*(builder.bitcast(value, SHORTS) for value in (a, b))), WORD_LANES)


@lane_operation(WORDS, WORDS)
def _held(builder, a):
    """The same words, which LLVM can not look into: no instruction."""
    return builder.asm(ir.FunctionType(WORD_LANES, [WORD_LANES]), "", "=x,0", [a], True)


@lane_operation(WORDS, WORDS, WORDS)
def _add_widened(builder, total, shorts):
    """total + the two 16-bit sums of each lane."""
    operands = (builder.bitcast(shorts, SHORTS), ir.Constant(SHORTS, [1] * 16))
    return builder.add(total, vector_intrinsic(builder, "llvm.x86.avx2.pmadd.wd", WORD_LANES, operands))


@lane_operation(WORDS, WORDS, WORDS)
def _add_sixteenfold(builder, total, shorts):
    """total + 16 times the two 16-bit sums of each lane."""
    operands = (builder.bitcast(shorts, SHORTS), ir.Constant(SHORTS, [16] * 16))
    return builder.add(total, vector_intrinsic(builder, "llvm.x86.avx2.pmadd.wd", WORD_LANES, operands))


@lane_operation(WORDS, WORDS)
def _magnitudes(builder, words):
    signed_bytes, zero = builder.bitcast(words, BYTES), ir.Constant(BYTES, [0] * 32)
    is_negative = builder.icmp_signed("<", signed_bytes, zero)
    return builder.bitcast(builder.select(is_negative, builder.sub(zero, signed_bytes), signed_bytes), WORD_LANES)


@lane_operation(WORDS, WORDS, WORDS)
def _turned(builder, x, w):
    """x where w is positive, -x where it is negative, 0 where it is 0."""
    operands = [builder.bitcast(value, BYTES) for value in (x, w)]
    return builder.bitcast(vector_intrinsic(builder, "llvm.x86.avx2.psign.b", BYTES, operands), WORD_LANES)


@jit
def _turned_pairs(x, w):
    return _pairs(w, x)


def _build_shared(n, pairs):
    """Compile `shared(u, v, others, at)`: 16-bit sums of n vectors' pairs, of those at u + at and v + at with those at four others + at.

    pairs(x, y): x from u or v, y from the others.  Returns the four sums of u, then those of v.
    """

    @jit
    def added(shorts, w, y):
        return _held(_add_shorts(shorts, pairs(w, y)))

    @inlined
    def first(u, v, others, at):
        p, q, r, s = others
        w, x, y = load(u + at), load(v + at), load(p + at)
        a, e = _held(pairs(w, y)), _held(pairs(x, y))
        y = load(q + at)
        b, f = _held(pairs(w, y)), _held(pairs(x, y))
        y = load(r + at)
        c, g = _held(pairs(w, y)), _held(pairs(x, y))
        y = load(s + at)
        return (a, b, c, _held(pairs(w, y))), (e, f, g, _held(pairs(x, y)))

    if n == 1:
        return first
    before = _build_shared(n - 1, pairs)

    @inlined
    def shared(u, v, others, at):
        ((a, b, c, d), (e, f, g, h)), (p, q, r, s) = before(u, v, others, at), others
        here = at + 32 * (n - 1)
        w, x, y = load(u + here), load(v + here), load(p + here)
        a, e = added(a, w, y), added(e, x, y)
        y = load(q + here)
        b, f = added(b, w, y), added(f, x, y)
        y = load(r + here)
        c, g = added(c, w, y), added(g, x, y)
        y = load(s + here)
        return (a, b, c, added(d, w, y)), (e, f, g, added(h, x, y))

    return shared


@inlined
def _four_widened(totals, shorts):
    """Four totals, each with 16-bit sums of its own added."""
    (a, b, c, d), (e, f, g, h) = totals, shorts
    return _add_widened(a, e), _add_widened(b, f), _add_widened(c, g), _add_widened(d, h)


def _build_small(n_shared):
    """Compile the helpers for weights of which `n_shared` vectors' pairs fit 16 bits: 1, 2, 4 or 8."""

    @jit
    def shared(w, x, at):
        """Sums of the pairs of two vectors."""
        return _add_shorts(_pairs(w, load(at)), _pairs(x, load(at + 32)))

    @jit
    def one(total, w0, w1, w2, w3, at):
        if n_shared >= 4:
            return _add_widened(total, _add_shorts(shared(w0, w1, at), shared(w2, w3, at + 64)))
        if n_shared == 2:
            return _add_widened(_add_widened(total, shared(w0, w1, at)), shared(w2, w3, at + 64))
        total = _add_widened(_add_widened(total, _pairs(w0, load(at))), _pairs(w1, load(at + 32)))
        return _add_widened(_add_widened(total, _pairs(w2, load(at + 64))), _pairs(w3, load(at + 96)))

    half, whole = _build_shared(min(n_shared, 4), _pairs), _build_shared(n_shared, _pairs)

    @inlined
    def both(u, v, pages, n_bytes):
        zero = splat(NOTHING)
        ours = others = zero, zero, zero, zero
        if n_bytes == 256:
            for at in range(0, n_bytes, 32 * n_shared):
                more, too = whole(u, v, pages, at)
                ours, others = _four_widened(ours, more), _four_widened(others, too)
        else:
            for at in range(0, n_bytes, 32 * min(n_shared, 4)):
                more, too = half(u, v, pages, at)
                ours, others = _four_widened(ours, more), _four_widened(others, too)
        return ours, others

    return one, both


def small(largest: int):
    """Return the helpers for unsigned weights of at most `largest`."""
    n_fitting = LARGEST_SHORT // (2 * largest * LARGEST_ACTIVATION)
    return _build_small(max(n for n in (1, 2, 4, 8) if n <= n_fitting or n == 1))


def signed():
    """Return the helpers for int8 weights; kept ones are in planes, which take the place of four rows."""

    @jit
    def pairs(w, x):
        return _pairs(_magnitudes(w), _turned(x, w))

    @jit
    def one(total, w0, w1, w2, w3, at):
        total = _add_widened(_add_widened(total, pairs(w0, load(at))), pairs(w1, load(at + 32)))
        return _add_widened(_add_widened(total, pairs(w2, load(at + 64))), pairs(w3, load(at + 96)))

    shared = _build_shared(8, _turned_pairs)

    @inlined
    def two_pages(p, q, u, v):
        zero = splat(NOTHING)
        (a, b, c, d), (e, f, g, h) = shared(p, q, (u, u + HIGH_PLANE, v, v + HIGH_PLANE), 0)
        w, x = _add_sixteenfold(_add_widened(zero, a), b), _add_sixteenfold(_add_widened(zero, c), d)
        return w, x, _add_sixteenfold(_add_widened(zero, e), f), _add_sixteenfold(_add_widened(zero, g), h)

    @inlined
    def both(u, v, pages, n_bytes):
        p, q, r, s = pages
        a, e, b, f = two_pages(p, q, u, v)
        c, g, d, h = two_pages(r, s, u, v)
        return (a, b, c, d), (e, f, g, h)

    return one, both


@jit
def _high(w):
    """The four high bits of int8 with 128 added."""
    return ((w >> 4) & NIBBLES) ^ EIGHTS


@jit
def keep_signed(words, at):
    """Store eight vectors of int8, 128 added, as two planes of four bits: the low ones at an address, the high ones `HIGH_PLANE` bytes on."""
    a, b, c, d, e, f, g, h = words
    keep_words((a & NIBBLES, b & NIBBLES, c & NIBBLES, d & NIBBLES, e & NIBBLES, f & NIBBLES, g & NIBBLES, h & NIBBLES), at)
    keep_words((_high(a), _high(b), _high(c), _high(d), _high(e), _high(f), _high(g), _high(h)), at + HIGH_PLANE)


def build_keep_levels(levels):
    """Compile what `keep_signed` does, for vectors of codes 0..15 that stand for these int8 levels."""
    low, high = byte_table([(level + 128) % 16 for level in levels]), byte_table([(level + 128) // 16 for level in levels])

    @jit
    def keep(codes, at):
        keep_words(low(codes), at)
        keep_words(high(codes), at + HIGH_PLANE)

    return keep
