"""Octets of IQ4_XS: sixteen bytes of nibbles per group, one group after the other, and 6-bit scales in two places."""

import numpy as np

from strata.cpu_pool.lane_memory import byte_table, load_short, load_word, splat_half
from strata.cpu_pool.lanes import constant_words, splat, splat_float
from strata.cpu_pool.octets.contract import OctetReader
from strata.cpu_pool.octets.nibbles import int8_levels, nibble_words
from strata.formats.bytewise import NIBBLE
from strata.formats.iq4_xs import MIDDLE, TWO_BITS
from strata.numerics.cpu import jit

ZERO = np.float32(0.0)
nibble_of_lane, pair_of_lane = constant_words(range(0, 32, 4)), constant_words(range(0, 16, 2))


def build() -> OctetReader:
    levels = int8_levels()
    looked_up = byte_table(levels)

    @jit
    def unpack_codes(at):
        low = (splat(load_word(at + 4)) >> nibble_of_lane()) & NIBBLE
        high = (splat(load_short(at + 2)) >> pair_of_lane()) & TWO_BITS
        s = (low | (high << 4)) - MIDDLE
        return nibble_words(at + 8, 16), splat_half(load_short(at)), s, s, splat_float(ZERO)

    @jit
    def unpack(at):
        codes, d, s0, s1, offset = unpack_codes(at)
        return looked_up(codes), d, s0, s1, offset

    return OctetReader(unpack, is_signed=True, levels=levels, unpack_codes=unpack_codes)
