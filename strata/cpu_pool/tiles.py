"""Tiles: one unpacked octet of each of a few weight rows in memory, and the lanes of all entries that meet them.

An unpacked octet takes `UNPACKED_BYTES`: eight vectors of words, then d, s0, s1, offset (`octets.contract`), then room for
a second plane of words.  What a format does not have is not stored.  The lanes of an entry are a vector for each row of
the tile.  Does not know: formats, what the words mean.
"""

from strata.cpu_pool.lane_memory import store
from strata.numerics.cpu import jit

TILE_ROWS, VECTOR = 8, 32
SCALES, FIRST_SCALES, SECOND_SCALES, OFFSETS, HIGH_PLANE, UNPACKED_BYTES = (VECTOR * vector for vector in (8, 9, 10, 11, 12, 20))
ENTRY_LANES_BYTES = VECTOR * TILE_ROWS
KEPT_BIAS = 128
"""What is added to a signed weight that is kept."""


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
