"""Sixteen bytes of each of eight groups, read as words or as 32 nibbles.

Nibbles lie as in Q4_0: weights 0..15 in the low halves of the bytes, weights 16..31 in the high ones.  Does not know:
scales.
"""

import numpy as np

from strata.cpu_pool.lane_memory import load_halves
from strata.cpu_pool.lane_moves import transpose_halves
from strata.formats.bytewise import BYTE, NIBBLES
from strata.formats.iq4_nl import level_pairs
from strata.numerics.cpu import jit


@jit
def four_words(at, stride):
    """Return words 0..3 of the sixteen bytes at each of eight places, one place per lane."""
    a, b = load_halves(at, at + 4 * stride), load_halves(at + stride, at + 5 * stride)
    c, d = load_halves(at + 2 * stride, at + 6 * stride), load_halves(at + 3 * stride, at + 7 * stride)
    return transpose_halves(a, b, c, d)


@jit
def nibble_words(at, stride):
    """Return the eight words of 32 nibbles at each of eight places."""
    a, b, c, d = four_words(at, stride)
    low = a & NIBBLES, b & NIBBLES, c & NIBBLES, d & NIBBLES
    return low + ((a >> 4) & NIBBLES, (b >> 4) & NIBBLES, (c >> 4) & NIBBLES, (d >> 4) & NIBBLES)


def int8_levels() -> tuple[int, ...]:
    """Return IQ4_NL's sixteen levels."""
    return tuple((level_pairs()[:16] & BYTE).astype(np.uint8).view(np.int8).tolist())
