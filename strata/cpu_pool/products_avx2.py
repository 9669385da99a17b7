"""Byte products with VPMADDUBSW: unsigned times signed bytes, two products in a saturating 16-bit sum.

Two products of magnitudes up to 128 and 127 fit (32512).  Where weights are smaller, sums of several vectors still fit
16 bits and are widened together.  A signed weight is split into its magnitude, the unsigned operand (so that -128 is one),
and its sign, which turns the activation.  With four rows, vectors are taken one by one in loops whose ends are `hidden`:
unrolled, the loops were ordered row by row, and the weights did not fit the registers.  The contract of the helpers is in
`instruction_sets.ByteProducts`.
Does not know: which CPUs have it.
"""

from llvmlite import ir

from strata.cpu_pool.lane_memory import hidden, load
from strata.cpu_pool.lanes import BYTE, WORD_LANES, WORDS, lane_operation, vector_intrinsic
from strata.numerics.cpu import inlined, jit

SIGNED_BIAS = 0
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
    return builder.asm(ir.FunctionType(WORD_LANES, [WORD_LANES]), "", "=x,0", [a], True)


@lane_operation(WORDS, WORDS, WORDS)
def _add_widened(builder, total, shorts):
    """total + the two 16-bit sums of each lane."""
    operands = (builder.bitcast(shorts, SHORTS), ir.Constant(SHORTS, [1] * 16))
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


@inlined
def _all_widened(sums, shorts):
    (a, b, c, d, e, f, g, h), (i, j, k, l, m, n, o, p) = sums, shorts
    low = _add_widened(a, i), _add_widened(b, j), _add_widened(c, k), _add_widened(d, l)
    return low + (_add_widened(e, m), _add_widened(f, n), _add_widened(g, o), _add_widened(h, p))


@inlined
def _all_pairs(u, v, pages, at):
    p, q, r, s = pages
    w, x, y = load(u + at), load(v + at), load(p + at)
    a, e = _held(_pairs(w, y)), _held(_pairs(x, y))
    y = load(q + at)
    b, f = _held(_pairs(w, y)), _held(_pairs(x, y))
    y = load(r + at)
    c, g = _held(_pairs(w, y)), _held(_pairs(x, y))
    y = load(s + at)
    return a, b, c, _held(_pairs(w, y)), e, f, g, _held(_pairs(x, y))


@jit
def _one_added(shorts, w, y):
    return _held(_add_shorts(shorts, _pairs(w, y)))


@inlined
def _all_added(shorts, u, v, pages, at):
    (a, b, c, d, e, f, g, h), (p, q, r, s) = shorts, pages
    w, x, y = load(u + at), load(v + at), load(p + at)
    a, e = _one_added(a, w, y), _one_added(e, x, y)
    y = load(q + at)
    b, f = _one_added(b, w, y), _one_added(f, x, y)
    y = load(r + at)
    c, g = _one_added(c, w, y), _one_added(g, x, y)
    y = load(s + at)
    return a, b, c, _one_added(d, w, y), e, f, g, _one_added(h, x, y)


def _build_shared(n):
    if n == 1:
        return _all_pairs
    before = _build_shared(n - 1)

    @inlined
    def shared(u, v, pages, at):
        return _all_added(before(u, v, pages, at), u, v, pages, at + 32 * (n - 1))

    return shared


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

    meet_shared = _build_shared(n_shared)
    meet_half = _build_shared(min(n_shared, 4))

    @inlined
    def both(u, v, starts, pages, n_bytes):
        a, b, c, d = starts
        sums = a, b, c, d, a, b, c, d
        if n_bytes > 128:
            for at in range(0, n_bytes, 32 * n_shared):
                sums = _all_widened(sums, meet_shared(u, v, pages, at))
        else:
            for at in range(0, n_bytes, 32 * (n_shared if n_shared < 4 else 4)):
                sums = _all_widened(sums, meet_half(u, v, pages, at))
        a, b, c, d, e, f, g, h = sums
        return (a, b, c, d), (e, f, g, h)

    return one, both


def small(largest: int):
    """Return the helpers for unsigned weights of at most `largest`."""
    n_fitting = LARGEST_SHORT // (2 * largest * LARGEST_ACTIVATION)
    return _build_small(max(n for n in (1, 2, 4, 8) if n <= n_fitting or n == 1))


def signed():
    """Return the helpers for int8 weights."""

    @jit
    def pairs(w, x):
        return _pairs(_magnitudes(w), _turned(x, w))

    @jit
    def one(total, w0, w1, w2, w3, at):
        total = _add_widened(_add_widened(total, pairs(w0, load(at))), pairs(w1, load(at + 32)))
        return _add_widened(_add_widened(total, pairs(w2, load(at + 64))), pairs(w3, load(at + 96)))

    @jit
    def add(total, m, w, x):
        return _add_widened(total, _pairs(m, _turned(x, w)))

    @inlined
    def both(u, v, starts, pages, n_bytes):
        (a, b, c, d), (p, q, r, s) = starts, pages
        e, f, g, h = a, b, c, d
        for at in range(0, hidden(n_bytes), 32):
            w, x = load(u + at), load(v + at)
            m, n = _magnitudes(w), _magnitudes(x)
            y = load(p + at)
            a, e = add(a, m, w, y), add(e, n, x, y)
            y = load(q + at)
            b, f = add(b, m, w, y), add(f, n, x, y)
            y = load(r + at)
            c, g = add(c, m, w, y), add(g, n, x, y)
            y = load(s + at)
            d, h = add(d, m, w, y), add(h, n, x, y)
        return (a, b, c, d), (e, f, g, h)

    return one, both
