"""Octets of the formats whose groups share a block's bytes: Q3_K, Q4_K, Q5_K, Q6_K.

A block is an octet.  Several lanes hold the same stored word and each shifts its own bits out of it: in Q4_K, lanes 2i and
2i + 1 hold a word of bytes 32i .. 32i + 31, shifted by 0 and by 4 bits.  `spread_*` bring eight such words into place.
"""

import numpy as np

from strata.cpu_pool.lane_memory import (
    load_halves, load_short, load_word, splat_half, widen_shorts, widen_word_bytes, widen_word_shorts,
)
from strata.cpu_pool.lane_moves import mover
from strata.cpu_pool.lanes import constant_words, splat, splat_float, to_floats
from strata.cpu_pool.octets.contract import OctetReader
from strata.formats.bytewise import NIBBLES, ONES, PAIRS
from strata.numerics.cpu import jit

ZERO, NOTHING = np.float32(0.0), np.int32(0)
SIX_BITS, TWO_HIGH_BITS = np.uint32(0x3F3F3F3F), np.uint32(0x30303030)
LOW_BYTE, SIGN, MIDDLE = np.uint32(0xFF), np.uint32(0x80), np.int32(32)

bit_of_lane = constant_words(range(8))
nibble_by_turns = constant_words([0, 4] * 4)
nibble_of_pair = constant_words([0, 0, 4, 4] * 2)
pair_of_lane = constant_words([0, 2, 4, 6] * 2)

_aabb = tuple(mover(w, w, 8 + w, 8 + w, 4 + w, 4 + w, 12 + w, 12 + w) for w in range(4))
_abab = tuple(mover(w, 8 + w, w, 8 + w, 4 + w, 12 + w, 4 + w, 12 + w) for w in range(4))
_aaaa = tuple(mover(w, w, w, w, 4 + w, 4 + w, 4 + w, 4 + w) for w in range(4))


def _build_spread(movers, second, upper):
    """Compile `spread(at)`: eight words for lanes; the j-th has the words j of the 32-byte runs that start at `at` and
    at + `second` in lanes 0..3, and of those `upper` bytes further on in lanes 4..7, as the movers say."""
    m0, m1, m2, m3 = movers

    @jit
    def spread(at):
        a, b = load_halves(at, at + upper), load_halves(at + second, at + second + upper)
        low = m0(a, b), m1(a, b), m2(a, b), m3(a, b)
        at += 16
        a, b = load_halves(at, at + upper), load_halves(at + second, at + second + upper)
        return low + (m0(a, b), m1(a, b), m2(a, b), m3(a, b))

    return spread


spread_pairs = _build_spread(_aabb, second=32, upper=64)
spread_turns = _build_spread(_abab, second=32, upper=64)
spread_quads = _build_spread(_aaaa, second=0, upper=32)


@jit
def _fields(words, shifts, mask):
    """Each lane's field of each word: shifted right by its own number of bits, then masked."""
    w0, w1, w2, w3, w4, w5, w6, w7 = words
    low = (w0 >> shifts) & mask, (w1 >> shifts) & mask, (w2 >> shifts) & mask, (w3 >> shifts) & mask
    return low + ((w4 >> shifts) & mask, (w5 >> shifts) & mask, (w6 >> shifts) & mask, (w7 >> shifts) & mask)


@jit
def _joined(low, high, n_bits):
    """low | high << n_bits, word by word."""
    a0, a1, a2, a3, a4, a5, a6, a7 = low
    b0, b1, b2, b3, b4, b5, b6, b7 = high
    first = a0 | (b0 << n_bits), a1 | (b1 << n_bits), a2 | (b2 << n_bits), a3 | (b3 << n_bits)
    return first + (a4 | (b4 << n_bits), a5 | (b5 << n_bits), a6 | (b6 << n_bits), a7 | (b7 << n_bits))


@jit
def _bit_planes(at):
    """Bit g of byte i of 32 bytes as the code i of lane g: 0 or 1."""
    low = splat(load_word(at)), splat(load_word(at + 4)), splat(load_word(at + 8)), splat(load_word(at + 12))
    at += 16
    high = splat(load_word(at)), splat(load_word(at + 4)), splat(load_word(at + 8)), splat(load_word(at + 12))
    return _fields(low + high, bit_of_lane(), ONES)


@jit
def _scales_and_minimums(at):
    """The eight 6-bit scales and minimums of Q4_K and Q5_K (`formats.q4_k.build_scales`)."""
    a, b, c = load_word(at), load_word(at + 4), load_word(at + 8)
    s = widen_word_bytes(a & SIX_BITS, (c & NIBBLES) | ((a >> 2) & TWO_HIGH_BITS))
    m = widen_word_bytes(b & SIX_BITS, ((c >> 4) & NIBBLES) | ((b >> 2) & TWO_HIGH_BITS))
    return s, m


@jit
def _with_minimums(words, at):
    """Return the octet of Q4_K or Q5_K that has these codes."""
    s, m = _scales_and_minimums(at + 4)
    return words, splat_half(load_short(at)), s, s, splat_half(load_short(at + 2)) * to_floats(splat(NOTHING) - m)


def build_q4_k() -> OctetReader:
    @jit
    def unpack(at):
        return _with_minimums(_fields(spread_pairs(at + 16), nibble_by_turns(), NIBBLES), at)

    return OctetReader(unpack, largest=15)


def build_q5_k() -> OctetReader:
    @jit
    def unpack(at):
        low = _fields(spread_pairs(at + 48), nibble_by_turns(), NIBBLES)
        return _with_minimums(_joined(low, _bit_planes(at + 16), 4), at)

    return OctetReader(unpack, largest=31)


def build_q6_k() -> OctetReader:
    @jit
    def unpack(at):
        low = _fields(spread_turns(at), nibble_of_pair(), NIBBLES)
        words = _joined(low, _fields(spread_quads(at + 128), pair_of_lane(), PAIRS), 4)
        both = widen_shorts(at + 192)
        s0, s1 = ((both & LOW_BYTE) ^ SIGN) - SIGN, ((both >> 8) ^ SIGN) - SIGN
        return words, splat_half(load_short(at + 208)), s0, s1, splat_float(ZERO)

    return OctetReader(unpack, bias=32, largest=63)


@jit
def _sixteen_scales(at):
    """Q3_K's scales s0 and s1 of each group, 6 bits, 32 too large."""
    a, b, c = load_word(at), load_word(at + 4), load_word(at + 8)
    first_low, first_high = (a & NIBBLES) | ((c & PAIRS) << 4), (b & NIBBLES) | (((c >> 2) & PAIRS) << 4)
    second_low, second_high = ((a >> 4) & NIBBLES) | (((c >> 4) & PAIRS) << 4), ((b >> 4) & NIBBLES) | (((c >> 6) & PAIRS) << 4)
    both = widen_word_shorts(first_low, first_high, second_low, second_high)
    return both & LOW_BYTE, both >> 8


def build_q3_k() -> OctetReader:
    @jit
    def unpack(at):
        low = _fields(spread_quads(at + 32), pair_of_lane(), PAIRS)
        s0, s1 = _sixteen_scales(at + 96)
        return _joined(low, _bit_planes(at), 2), splat_half(load_short(at + 108)), s0 - MIDDLE, s1 - MIDDLE, splat_float(ZERO)

    return OctetReader(unpack, bias=4, largest=7)
