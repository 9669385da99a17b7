"""Sixteen bytes of each of eight groups, read as words or as 32 nibbles.

Nibbles lie as in Q4_0: weights 0..15 in the low halves of the bytes, weights 16..31 in the high ones.  Does not know:
scales.
"""

import numpy as np

from strata.cpu_pool.lane_memory import load_halves, look_up_bytes
from strata.cpu_pool.lane_moves import transpose_halves
from strata.cpu_pool.lanes import constant_words
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


def build_levels():
    """Compile `levels(words)`: eight words of nibbles become eight words of IQ4_NL's int8 levels."""
    sixteen = (level_pairs()[:16] & BYTE).astype(np.uint8).view("<u4")
    table = constant_words([*sixteen, *sixteen])

    @jit
    def levels(words):
        w0, w1, w2, w3, w4, w5, w6, w7 = words
        t = table()
        low = look_up_bytes(t, w0), look_up_bytes(t, w1), look_up_bytes(t, w2), look_up_bytes(t, w3)
        return low + (look_up_bytes(t, w4), look_up_bytes(t, w5), look_up_bytes(t, w6), look_up_bytes(t, w7))

    return levels
