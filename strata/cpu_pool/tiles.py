"""Unpacked octets in memory: what several activation rows meet, so that weights are unpacked once.

An unpacked octet takes twelve vectors: eight of words, then d, s0, s1, offset (`octets.contract`).  Does not know: formats.
"""

from strata.cpu_pool.lane_memory import load, load_floats, store, store_floats
from strata.numerics.cpu import jit

UNPACKED_BYTES = 640
TILE_ROWS = 8
ENTRY_LANES_BYTES = 32 * TILE_ROWS
KEPT_BIAS = 128
FIRST_SCALES, SECOND_SCALES, OFFSETS = 288, 320, 352


@jit
def keep_words(words, at):
    """Store eight vectors one after the other."""
    w0, w1, w2, w3, w4, w5, w6, w7 = words
    store(at, w0)
    store(at + 32, w1)
    store(at + 64, w2)
    store(at + 96, w3)
    store(at + 128, w4)
    store(at + 160, w5)
    store(at + 192, w6)
    store(at + 224, w7)
