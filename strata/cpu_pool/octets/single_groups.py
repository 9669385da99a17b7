"""Octets of the formats with 32 weights in a block: Q8_0, Q4_0, Q5_0, Q5_1, IQ4_NL.

Eight blocks lie one after the other; words are collected from all eight at once.  Where codes are nibbles, the word of
weights 4j .. 4j+3 and that of weights 16 + 4j .. share four bytes, low and high.  Scales are blended where fifth bits are
collected too, and shuffled together elsewhere: blending reads more.
"""

import numpy as np

from strata.cpu_pool.lane_memory import blend_halves, byte_table, collect_halves, collect_words
from strata.cpu_pool.lanes import splat, splat_float
from strata.cpu_pool.octets.contract import OctetReader
from strata.cpu_pool.octets.nibbles import four_words, int8_levels, nibble_words
from strata.formats import iq4_nl, q4_0, q5_0, q5_1, q8_0
from strata.formats.bytewise import NIBBLE, ONES, SPREAD
from strata.numerics.cpu import jit

ONE = np.int32(1)
ZERO = np.float32(0.0)


@jit
def _fifth(bits):
    """Bit i (i < 4) becomes bit 4 of byte i."""
    return (((bits & NIBBLE) * SPREAD) & ONES) << 4


@jit
def _with_fifth_bits(words, bits):
    """Add bit i of each lane's 32 bits as bit 4 of its code i."""
    w0, w1, w2, w3, w4, w5, w6, w7 = words
    low = w0 | _fifth(bits), w1 | _fifth(bits >> 4), w2 | _fifth(bits >> 8), w3 | _fifth(bits >> 12)
    return low + (w4 | _fifth(bits >> 16), w5 | _fifth(bits >> 20), w6 | _fifth(bits >> 24), w7 | _fifth(bits >> 28))


def build_q8_0() -> OctetReader:
    stride = q8_0.FORMAT.block_bytes

    @jit
    def unpack(at):
        words = four_words(at + 2, stride) + four_words(at + 18, stride)
        return words, collect_halves(at, stride), splat(ONE), splat(ONE), splat_float(ZERO)

    return OctetReader(unpack, is_signed=True, has_scales=False)


def build_q4_0() -> OctetReader:
    stride = q4_0.FORMAT.block_bytes

    @jit
    def unpack(at):
        return nibble_words(at + 2, stride), collect_halves(at, stride), splat(ONE), splat(ONE), splat_float(ZERO)

    return OctetReader(unpack, bias=8, largest=15, has_scales=False)


def build_q5_0() -> OctetReader:
    stride = q5_0.FORMAT.block_bytes

    @jit
    def unpack(at):
        words = _with_fifth_bits(nibble_words(at + 6, stride), collect_words(at + 2, stride))
        return words, blend_halves(at, stride), splat(ONE), splat(ONE), splat_float(ZERO)

    return OctetReader(unpack, bias=16, largest=31, has_scales=False)


def build_q5_1() -> OctetReader:
    stride = q5_1.FORMAT.block_bytes

    @jit
    def unpack(at):
        words = _with_fifth_bits(nibble_words(at + 8, stride), collect_words(at + 4, stride))
        return words, blend_halves(at, stride), splat(ONE), splat(ONE), blend_halves(at + 2, stride)

    return OctetReader(unpack, largest=31, has_scales=False)


def build_iq4_nl() -> OctetReader:
    stride, levels = iq4_nl.FORMAT.block_bytes, int8_levels()
    looked_up = byte_table(levels)

    @jit
    def unpack_codes(at):
        return nibble_words(at + 2, stride), collect_halves(at, stride), splat(ONE), splat(ONE), splat_float(ZERO)

    @jit
    def unpack(at):
        codes, d, s0, s1, offset = unpack_codes(at)
        return looked_up(codes), d, s0, s1, offset

    return OctetReader(unpack, is_signed=True, has_scales=False, levels=levels, unpack_codes=unpack_codes)
