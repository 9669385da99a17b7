"""Weight formats compiled for blocks in shared memory, and where a card has a shorter way to the same integers.

A reader's `word(raw, at, group, j)` and `scales(raw, at, group)` are the format's own; `at` is an address (addresses.py), raw
is ignored.  Where
`turned` is set, word j holds weights of another order: byte i of word j (j < 4) is weight 4 i + j of the first half of the
group, of words 4..7 the second half; it meets the turned copy of the activation codes, which has the same order.  `bias` is
what each byte holds too much: the exact dot product is dot(words, codes) - bias * (sum of codes).

`eight(raw, at, group)` gives a group's eight words for dp4a.  Where `unsigned` is set they hold bytes 0 .. 255 for
dp4a_unsigned, and the dot product is 2^shift(group) times the true one.  Integer sums have no order and the shift leaves no
rest, so a result's bits depend on none of this.  Does not know: products, memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from strata.cuda.machine.addresses import SHARED_ALIGNED_SEAM, SHARED_SEAM, shared_four_words, shared_word
from strata.cuda.machine.seam import half, jit, mul, permute_bytes
from strata.formats.bytewise import NIBBLE, NIBBLES, ONES, PAIRS, TOP_BITS
from strata.formats.contract import WeightFormat

AS_IS, BY_TWO, BY_FOUR = np.uint32(0x3210), np.uint32(0x5432), np.uint32(0x7654)
ONE, ZERO = np.int32(1), np.float32(0.0)
HIGH_FIELDS, MINUS_32 = np.uint32(0x30303030), np.uint32(0x60606060)
"""Where the upper two of six bits lie in each byte; what makes bytes 0 .. 63 signed and 32 less, with their top bits turned."""
LOW_HALF, SIX_BITS, HIGH_BITS, NONE = np.uint32(0xFFFF), np.uint32(63), np.uint32(0x30), np.uint32(0)


@dataclass(frozen=True, slots=True)
class CudaReader:
    """A format's helpers for CUDA, and the order, bias and scale of its words; see the module's docstring."""

    word: Callable
    scales: Callable
    eight: Callable
    turned: bool = False
    bias: int = 0
    unsigned: bool = False
    shift: Callable | None = None


def _eight_words(word):
    @jit
    def eight(raw, at, group):
        return (
            word(raw, at, group, 0), word(raw, at, group, 1), word(raw, at, group, 2), word(raw, at, group, 3),
            word(raw, at, group, 4), word(raw, at, group, 5), word(raw, at, group, 6), word(raw, at, group, 7),
        )

    return eight


def _q2_0(plain) -> CudaReader:
    """Two bits a weight: shifting a word of 16 codes gives four of them per step, in turned order."""
    load_u32 = SHARED_SEAM.load_u32

    @jit
    def word(raw, at, group, j):
        codes = load_u32(raw, at + 2 + 8 * group + 4 * (j >> 2))
        return np.int32((codes >> (2 * (j & 3))) & PAIRS)

    return CudaReader(word, plain.scales, _eight_words(word), turned=True, bias=1)


def _q4_0(plain) -> CudaReader:
    """Blocks begin at 0 or 2 mod 4: aligned words, joined by byte selection; codes stay 8 too large."""

    @jit
    def word(raw, at, group, j):
        base, which = at & -4, 4 * (j & 3)
        pairs = np.uint32(permute_bytes(shared_word(base + which), shared_word(base + which + 4), BY_FOUR if at & 2 else BY_TWO))
        return np.int32((pairs >> (j & 4)) & NIBBLES)

    @jit
    def scales(raw, at, group):
        return half((np.uint32(shared_word(at & -4)) >> (8 * np.uint32(at & 2))) & LOW_HALF), ONE, ONE, ZERO

    return CudaReader(word, scales, _eight_words(word), bias=8)


def _q8_0(plain) -> CudaReader:
    """Codes lie at 2 mod 4 in every other block: aligned words, joined by byte selection."""

    @jit
    def word(raw, at, group, j):
        first = at + 2
        base = first & -4
        low, high = shared_word(base + 4 * j), shared_word(base + 4 * j + 4)
        return np.int32(permute_bytes(low, high, BY_TWO if first & 2 else AS_IS))

    return CudaReader(word, plain.scales, _eight_words(word))


@jit
def _header_scales(raw, at, group):
    """Scales of Q4_K and Q5_K from the block's first 16 bytes in one read; the formulas are those of formats/q4_k.py."""
    w0, w1, w2, w3 = shared_four_words(at)
    k = 8 * (group & 3)
    a, b, c = np.uint32(w1) >> k, np.uint32(w2) >> k, np.uint32(w3) >> k
    low = group < 4
    kept, lifted = SIX_BITS if low else NIBBLE, NONE if low else HIGH_BITS
    s = ((a if low else c) & kept) | ((a >> 2) & lifted)
    m = ((b if low else c >> 4) & kept) | ((b >> 2) & lifted)
    scale = np.int32(s)
    return half(np.uint32(w0) & LOW_HALF), scale, scale, mul(half(np.uint32(w0) >> 16), np.float32(np.int32(-np.int32(m))))


@jit
def _nibble_shift(group):
    return 4 * (group & 1)


def _q4_k(plain) -> CudaReader:
    """Blocks are 9 x 16 bytes: wide reads; the upper nibbles stay where they are, 16 times too large."""

    @jit
    def eight(raw, at, group):
        kept = NIBBLES << (4 * (group & 1))
        first = at + 16 + 32 * (group >> 1)
        w0, w1, w2, w3 = shared_four_words(first)
        w4, w5, w6, w7 = shared_four_words(first + 16)
        return (
            np.uint32(w0 & kept), np.uint32(w1 & kept), np.uint32(w2 & kept), np.uint32(w3 & kept),
            np.uint32(w4 & kept), np.uint32(w5 & kept), np.uint32(w6 & kept), np.uint32(w7 & kept),
        )

    return CudaReader(plain.word, _header_scales, eight, unsigned=True, shift=_nibble_shift)


def _q5_k(plain) -> CudaReader:
    """Blocks are 11 x 16 bytes: wide reads."""

    @jit
    def joined(low, high, shift, group):
        nibbles = (np.uint32(low) >> shift) & NIBBLES
        return np.int32(nibbles | (((np.uint32(high) >> group) & ONES) << 4))

    @jit
    def eight(raw, at, group):
        shift = 4 * (group & 1)
        first = at + 48 + 32 * (group >> 1)
        w0, w1, w2, w3 = shared_four_words(first)
        w4, w5, w6, w7 = shared_four_words(first + 16)
        h0, h1, h2, h3 = shared_four_words(at + 16)
        h4, h5, h6, h7 = shared_four_words(at + 32)
        return (
            joined(w0, h0, shift, group), joined(w1, h1, shift, group), joined(w2, h2, shift, group), joined(w3, h3, shift, group),
            joined(w4, h4, shift, group), joined(w5, h5, shift, group), joined(w6, h6, shift, group), joined(w7, h7, shift, group),
        )

    return CudaReader(plain.word, _header_scales, eight)


@jit
def _from_pair(low, high, shift):
    """32 bits of two neighbouring words from bit `shift` (0 .. 31) on: one funnel shift."""
    return np.uint32(((np.uint64(high) << np.uint64(32)) | np.uint64(low)) >> np.uint64(shift))


def _q6_k(plain) -> CudaReader:
    """Every other block begins at 2 mod 4: aligned words in pairs, whose shift brings fields and bytes to their places at once."""

    @jit
    def six(l0, l1, h0, h1, low_shift, high_shift):
        low, high = _from_pair(l0, l1, low_shift), _from_pair(h0, h1, high_shift)
        codes = np.uint32((low & NIBBLES) | (np.uint32(high << 4) & HIGH_FIELDS))
        return np.int32(np.uint32(codes + MINUS_32) ^ TOP_BITS)

    @jit
    def eight(raw, at, group):
        base, odd = at & -4, np.int32(8 * (at & 2))
        low_shift, high_shift = np.int32(odd + 2 * (group & 2)), np.int32(odd + 2 * (group & 3))
        low = base + 64 * (group >> 2) + 32 * (group & 1)
        high = base + 128 + 32 * (group >> 2)
        l0, l1, l2, l3, l4 = shared_word(low), shared_word(low + 4), shared_word(low + 8), shared_word(low + 12), shared_word(low + 16)
        l5, l6, l7, l8 = shared_word(low + 20), shared_word(low + 24), shared_word(low + 28), shared_word(low + 32)
        h0, h1, h2, h3, h4 = shared_word(high), shared_word(high + 4), shared_word(high + 8), shared_word(high + 12), shared_word(high + 16)
        h5, h6, h7, h8 = shared_word(high + 20), shared_word(high + 24), shared_word(high + 28), shared_word(high + 32)
        return (
            six(l0, l1, h0, h1, low_shift, high_shift), six(l1, l2, h1, h2, low_shift, high_shift),
            six(l2, l3, h2, h3, low_shift, high_shift), six(l3, l4, h3, h4, low_shift, high_shift),
            six(l4, l5, h4, h5, low_shift, high_shift), six(l5, l6, h5, h6, low_shift, high_shift),
            six(l6, l7, h6, h7, low_shift, high_shift), six(l7, l8, h7, h8, low_shift, high_shift),
        )

    return CudaReader(plain.word, plain.scales, eight)


SHORTER = {"Q2_0": _q2_0, "Q4_0": _q4_0, "Q8_0": _q8_0, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k}


@cache
def reader_of(form: WeightFormat) -> CudaReader:
    """Return the reader of a format.

    Fields of 32 bits (or 128) lie at multiples of their size in a format whose blocks are multiples of that; so do rows,
    and expert tables start at a multiple of 16 bytes.
    """
    plain = form.build(SHARED_SEAM if form.block_bytes % 4 else SHARED_ALIGNED_SEAM)
    shorter = SHORTER.get(form.name)
    return shorter(plain) if shorter else CudaReader(plain.word, plain.scales, _eight_words(plain.word))
