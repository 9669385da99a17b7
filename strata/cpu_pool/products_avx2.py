"""Byte products with VPMADDUBSW: unsigned times signed bytes, two products in a saturating 16-bit sum.

Two products of magnitudes up to 128 and 127 fit (32512).  Where weights are smaller, sums of several vectors still fit
16 bits and are widened together.  A signed weight is split into its magnitude, the unsigned operand (so that -128 is one),
and its sign, which turns the activation.  The contract of the helpers is in `instruction_sets.ByteProducts`.
Does not know: which CPUs have it.
"""

from llvmlite import ir

from strata.cpu_pool.lane_memory import load
from strata.cpu_pool.lanes import BYTE, WORD_LANES, WORDS, lane_operation, vector_intrinsic
from strata.numerics.cpu import jit

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


def small(largest: int):
    """Return the helper for unsigned weights of at most `largest`: 4, 2 or 1 vectors share a widening."""
    n_shared = LARGEST_SHORT // (2 * largest * LARGEST_ACTIVATION)

    @jit
    def add_four(total, w0, w1, w2, w3, at):
        first = _add_shorts(_pairs(w0, load(at)), _pairs(w1, load(at + 32)))
        return _add_widened(total, _add_shorts(first, _add_shorts(_pairs(w2, load(at + 64)), _pairs(w3, load(at + 96)))))

    @jit
    def add_two(total, w0, w1, w2, w3, at):
        total = _add_widened(total, _add_shorts(_pairs(w0, load(at)), _pairs(w1, load(at + 32))))
        return _add_widened(total, _add_shorts(_pairs(w2, load(at + 64)), _pairs(w3, load(at + 96))))

    @jit
    def add_each(total, w0, w1, w2, w3, at):
        total = _add_widened(_add_widened(total, _pairs(w0, load(at))), _pairs(w1, load(at + 32)))
        return _add_widened(_add_widened(total, _pairs(w2, load(at + 64))), _pairs(w3, load(at + 96)))

    if n_shared >= 4:
        return add_four
    return add_two if n_shared >= 2 else add_each


def signed():
    """Return the helper for int8 weights."""

    @jit
    def pairs(w, x):
        return _pairs(_magnitudes(w), _turned(x, w))

    @jit
    def add_signed(total, w0, w1, w2, w3, at):
        total = _add_widened(_add_widened(total, pairs(w0, load(at))), pairs(w1, load(at + 32)))
        return _add_widened(_add_widened(total, pairs(w2, load(at + 64))), pairs(w3, load(at + 96)))

    return add_signed
