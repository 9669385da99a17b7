"""Octets of the i-quants with codebooks: IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S.

Every lane looks its own words up: index vectors hold one index per group.  A grid's magnitudes (1 .. 62) meet their signs
bytewise, which makes unsigned bytes around a bias:

    bias + w  where the weight's bit is 0,  bias - w  where it is 1

Signs are one word per group, bit i for weight i.  Where a file stores seven bits for eight weights, the eighth makes the
number of negative ones even.  A block is an octet.
"""

import numpy as np

from strata.cpu_pool.lane_memory import load, load_halves, load_short, load_word, look_up, splat_half, widen_bytes
from strata.cpu_pool.lane_moves import even_words, odd_words
from strata.cpu_pool.lanes import constant_words, splat, splat_float
from strata.cpu_pool.octets.contract import OctetReader
from strata.formats import grids
from strata.formats.bytewise import BYTE, NIBBLE, ONES, SPREAD
from strata.numerics.cpu import jit

ZERO, QUARTER, EIGHTH = (np.float32(value) for value in (0.0, 0.25, 0.125))
ONE, THREE = np.uint32(1), np.uint32(3)
NINE_BITS, LOW_HALF = np.uint32(0x1FF), np.uint32(0xFFFF)
SEVENS_0, SEVENS_1, SEVENS_2, SEVENS_3 = (np.uint32(0x7F << (8 * byte)) for byte in range(4))
nibble_of_lane = constant_words(range(0, 32, 4))


# ---- signs


def _build_signed(bias):
    """Compile `signed(words, signs)`: eight words of magnitudes and 32 sign bits per lane to biased bytes."""
    biases = np.uint32(bias * 0x01010101)

    @jit
    def four(words, signs):
        """bias + w, or bias - w = (127 - w) + bias - 127: no byte borrows from its neighbour."""
        negative = ((signs & NIBBLE) * SPREAD) & ONES
        sevens = (negative << 7) - negative
        return ((words ^ sevens) + biases) - sevens

    @jit
    def signed(words, signs):
        w0, w1, w2, w3, w4, w5, w6, w7 = words
        low = four(w0, signs), four(w1, signs >> 4), four(w2, signs >> 8), four(w3, signs >> 12)
        return low + (four(w4, signs >> 16), four(w5, signs >> 20), four(w6, signs >> 24), four(w7, signs >> 28))

    return signed


@jit
def _with_eighth_signs(codes):
    """Four 7-bit sign codes, one a byte: bit 7 of each byte becomes the parity of the others."""
    folded = codes ^ (codes >> 4)
    folded = folded ^ (folded >> 2)
    return codes | (((folded ^ (folded >> 1)) & ONES) << 7)


@jit
def _apart(codes):
    """Four 7-bit codes in 28 bits, moved to a byte each."""
    return (codes & SEVENS_0) | ((codes << 1) & SEVENS_1) | ((codes << 2) & SEVENS_2) | ((codes << 3) & SEVENS_3)


# ---- indices and scales


@jit
def _eight_bytes(at):
    """Return the low and the high words of eight bytes per group."""
    a, b = load_halves(at, at + 32), load_halves(at + 16, at + 48)
    return even_words(a, b), odd_words(a, b)


@jit
def _odd(scales):
    return (scales << 1) | ONE


@jit
def _odd_pair(bytes_of_scales):
    """Two 4-bit scales in a byte: 2s + 1 of the low and of the high nibble."""
    return _odd(bytes_of_scales & NIBBLE), _odd(bytes_of_scales >> 4)


def _build_fours(name):
    """Compile `words(i0, .., i7)` for a grid of four magnitudes an entry."""
    entry = look_up(grids.grid_words(name))

    @jit
    def words(i0, i1, i2, i3, i4, i5, i6, i7):
        return entry(i0), entry(i1), entry(i2), entry(i3), entry(i4), entry(i5), entry(i6), entry(i7)

    return words


def _build_eights(table):
    """Compile `words(i0, i1, i2, i3)` for a grid of eight magnitudes, two words, an entry."""
    entry = look_up(table)

    @jit
    def two(index):
        return entry(index << 1), entry((index << 1) | ONE)

    @jit
    def words(i0, i1, i2, i3):
        return two(i0) + two(i1) + two(i2) + two(i3)

    return words


# ---- formats


def build_iq3_s() -> OctetReader:
    words, signed = _build_fours("IQ3_S"), _build_signed(16)

    @jit
    def index(low, high):
        return (low & BYTE) | ((high & ONE) << 8)

    @jit
    def unpack(at):
        low, high = _eight_bytes(at + 2)
        ninth = widen_bytes(at + 66)
        found = words(
            index(low, ninth), index(low >> 8, ninth >> 1), index(low >> 16, ninth >> 2), index(low >> 24, ninth >> 3),
            index(high, ninth >> 4), index(high >> 8, ninth >> 5), index(high >> 16, ninth >> 6), index(high >> 24, ninth >> 7),
        )
        s = _odd((splat(load_word(at + 106)) >> nibble_of_lane()) & NIBBLE)
        return signed(found, load(at + 74)), splat_half(load_short(at)), s, s, splat_float(ZERO)

    return OctetReader(unpack, bias=16, largest=31)


def build_iq3_xxs() -> OctetReader:
    words, signed = _build_fours("IQ3_XXS"), _build_signed(64)

    @jit
    def unpack(at):
        low, high = _eight_bytes(at + 2)
        found = words(
            low & BYTE, (low >> 8) & BYTE, (low >> 16) & BYTE, low >> 24,
            high & BYTE, (high >> 8) & BYTE, (high >> 16) & BYTE, high >> 24,
        )
        codes = load(at + 66)
        s = _odd(codes >> 28)
        signs = _with_eighth_signs(_apart(codes))
        return signed(found, signs), splat_half(load_short(at)) * splat_float(QUARTER), s, s, splat_float(ZERO)

    return OctetReader(unpack, bias=64, largest=126)


def build_iq2_xxs() -> OctetReader:
    words, signed = _build_eights(grids.grid_words("IQ2_XXS")), _build_signed(64)

    @jit
    def unpack(at):
        indices, codes = _eight_bytes(at + 2)
        found = words(indices & BYTE, (indices >> 8) & BYTE, (indices >> 16) & BYTE, indices >> 24)
        s = _odd(codes >> 28)
        signs = _with_eighth_signs(_apart(codes))
        return signed(found, signs), splat_half(load_short(at)) * splat_float(EIGHTH), s, s, splat_float(ZERO)

    return OctetReader(unpack, bias=64, largest=107)


def build_iq2_xs() -> OctetReader:
    words, signed = _build_eights(grids.grid_words("IQ2_XS")), _build_signed(64)

    @jit
    def unpack(at):
        a, b = _eight_bytes(at + 2)
        found = words(a & NINE_BITS, (a >> 16) & NINE_BITS, b & NINE_BITS, (b >> 16) & NINE_BITS)
        codes = ((a & LOW_HALF) >> 9) | ((a >> 25) << 8) | (((b & LOW_HALF) >> 9) << 16) | ((b >> 25) << 24)
        s0, s1 = _odd_pair(widen_bytes(at + 66))
        d = splat_half(load_short(at)) * splat_float(EIGHTH)
        return signed(found, _with_eighth_signs(codes)), d, s0, s1, splat_float(ZERO)

    return OctetReader(unpack, bias=64, largest=107)


def build_iq2_s() -> OctetReader:
    words, signed = _build_eights(grids.grid_words("IQ2_S")), _build_signed(64)

    @jit
    def index(low, high):
        return (low & BYTE) | ((high & THREE) << 8)

    @jit
    def unpack(at):
        low, high = load(at + 2), widen_bytes(at + 66)
        found = words(index(low, high), index(low >> 8, high >> 2), index(low >> 16, high >> 4), index(low >> 24, high >> 6))
        s0, s1 = _odd_pair(widen_bytes(at + 74))
        d = splat_half(load_short(at)) * splat_float(EIGHTH)
        return signed(found, load(at + 34)), d, s0, s1, splat_float(ZERO)

    return OctetReader(unpack, bias=64, largest=107)
