"""Octets of IQ1_M: 11-bit grid indices in two places, 3-bit scales and a half-precision d in the corners of four shorts."""

from strata.cpu_pool.lane_memory import load, load_short, load_word, look_up, splat_half, widen_shorts
from strata.cpu_pool.lane_moves import low_halves
from strata.cpu_pool.lanes import constant_words, splat, splat_float
from strata.cpu_pool.octets.contract import OctetReader
from strata.formats.bytewise import BYTE
from strata.formats.iq1_m import (
    EIGHTH, FOURTH_NIBBLE, ONE, SECOND_NIBBLE, THIRD_NIBBLE, THREE_BITS, TWO_EACH, ZERO, biased_grid,
)
from strata.numerics.cpu import jit

scale_of_lane = constant_words([0, 6, 16, 22] * 2)


@jit
def _d_bits(at):
    """The four highest bits of four shorts, lowest first."""
    d = (load_short(at) >> 12) | ((load_short(at + 2) >> 8) & SECOND_NIBBLE)
    return d | ((load_short(at + 4) >> 4) & THIRD_NIBBLE) | (load_short(at + 6) & FOURTH_NIBBLE)


def build() -> OctetReader:
    """Grid bytes are 1, 9, 17, nine above 8 * grid; a code is that less 8 or 10, so 10 above the code is plus 2 or 0."""
    entry = look_up(biased_grid())

    @jit
    def two(low, nibble):
        index = ((low & BYTE) | ((nibble & THREE_BITS) << 8)) << 1
        more = (((nibble >> 3) & ONE) ^ ONE) * TWO_EACH
        return entry(index) + more, entry(index | ONE) + more

    @jit
    def unpack(at):
        low, nibbles = load(at), widen_shorts(at + 32)
        words = two(low, nibbles) + two(low >> 8, nibbles >> 4) + two(low >> 16, nibbles >> 8) + two(low >> 24, nibbles >> 12)
        both = low_halves(splat(load_word(at + 48)), splat(load_word(at + 52))) >> scale_of_lane()
        s0, s1 = ((both & THREE_BITS) << 1) | ONE, (((both >> 3) & THREE_BITS) << 1) | ONE
        return words, splat_half(_d_bits(at + 48)) * splat_float(EIGHTH), s0, s1, splat_float(ZERO)

    return OctetReader(unpack, bias=10, largest=19)
