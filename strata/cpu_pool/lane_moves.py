"""Moving words from lane to lane: permutations, transposition, the eight-lane sum.

    mover(lanes)                makes, outside kernels, `move(a, b)`: lane k of the result is lane lanes[k] of the sixteen
                                lanes of a and b, b's counted from 8
    low_halves(a, b)            lanes 0..3 of a, then of b;   high_halves: lanes 4..7
    even_words(a, b)            words 0, 2 of a's low half, of b's low half, of a's high half, of b's high half;
                                odd_words: words 1, 3
    swap_lanes(a, a)            neighbours change places;  swap_pairs, swap_quads: pairs and halves do
    transpose_halves(a, b, c, d)
                                each half of a vector as a column of four words: word j of the columns a, b, c, d in
                                lanes 0..3 and 4..7 of the j-th result
    transpose(rows)             eight vectors as rows of an 8 x 8 matrix: the eight columns
    pack_bytes(a, b, c, d)      the low bytes of 32 lanes, in order, as eight words
    sum_lanes(floats)           ((0+4) + (2+6)) + ((1+5) + (3+7)): the contract's eight-lane tree

Does not know: memory, what the words mean.
"""

from llvmlite import ir
from numba import types

from strata.cpu_pool.lanes import BYTE, FLOATS, N_LANES, WORD, WORD_LANES, WORDS, lane_operation
from strata.numerics.cpu import jit


def mover(*lanes):
    """Return a helper that picks eight of the sixteen lanes of two vectors of words."""
    picked = ir.Constant(WORD_LANES, list(lanes))

    @lane_operation(WORDS, WORDS, WORDS)
    def move(builder, a, b):
        return builder.shuffle_vector(a, b, picked)

    return move


low_halves, high_halves = mover(0, 1, 2, 3, 8, 9, 10, 11), mover(4, 5, 6, 7, 12, 13, 14, 15)
swap_lanes, swap_pairs, swap_quads = mover(1, 0, 3, 2, 5, 4, 7, 6), mover(2, 3, 0, 1, 6, 7, 4, 5), mover(4, 5, 6, 7, 0, 1, 2, 3)
even_words, odd_words = mover(0, 2, 8, 10, 4, 6, 12, 14), mover(1, 3, 9, 11, 5, 7, 13, 15)
_low_words, _high_words = mover(0, 8, 1, 9, 4, 12, 5, 13), mover(2, 10, 3, 11, 6, 14, 7, 15)
_low_pairs, _high_pairs = mover(0, 1, 8, 9, 4, 5, 12, 13), mover(2, 3, 10, 11, 6, 7, 14, 15)


@jit
def transpose_halves(a, b, c, d):
    ab_low, ab_high, cd_low, cd_high = _low_words(a, b), _high_words(a, b), _low_words(c, d), _high_words(c, d)
    return _low_pairs(ab_low, cd_low), _high_pairs(ab_low, cd_low), _low_pairs(ab_high, cd_high), _high_pairs(ab_high, cd_high)


@jit
def transpose(rows):
    r0, r1, r2, r3, r4, r5, r6, r7 = rows
    low = transpose_halves(low_halves(r0, r4), low_halves(r1, r5), low_halves(r2, r6), low_halves(r3, r7))
    high = transpose_halves(high_halves(r0, r4), high_halves(r1, r5), high_halves(r2, r6), high_halves(r3, r7))
    return low + high


@lane_operation(WORDS, WORDS, WORDS, WORDS, WORDS)
def pack_bytes(builder, a, b, c, d):
    def joined(left, right, n):
        return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(WORD, n), list(range(n))))

    whole = joined(joined(a, b, 16), joined(c, d, 16), 32)
    return builder.bitcast(builder.trunc(whole, ir.VectorType(BYTE, 32)), WORD_LANES)


@lane_operation(types.float32, FLOATS)
def sum_lanes(builder, floats):
    total, n = floats, N_LANES
    while n > 1:
        n //= 2
        halves = [builder.shuffle_vector(total, total, ir.Constant(ir.VectorType(WORD, n), list(range(at, at + n)))) for at in (0, n)]
        total = builder.fadd(*halves)
    return builder.extract_element(total, WORD(0))
