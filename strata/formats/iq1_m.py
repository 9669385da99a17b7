"""IQ1_M: 256 weights in 56 bytes, value = d/8 * (2s + 1) * (8 * grid +- 1), s of 3 bits per 16 weights.

    0  low bytes of the grid indices[32], one per 8 weights
    32 nibbles[32], one per 8 weights, first in the low half: high three bits of the index, and the sign of the +- 1
    48 four times 16 bits: four s of 3 bits (two groups), and on top four bits of d (fp16), lowest first

Each grid entry gives 8 values out of -1, 0, 1; ggml's delta of 1/8 is the +- 1, so codes lie in -9 .. 9.
"""

import numpy as np

from strata.formats import bytewise, grids
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ZERO = np.float32(0.0)
EIGHTH = np.float32(0.125)
ONE = np.uint32(1)
THREE_BITS = np.uint32(7)
EIGHTS = np.uint32(0x08080808)
TWO_EACH = np.uint32(0x02020202)
SECOND_NIBBLE, THIRD_NIBBLE, FOURTH_NIBBLE = np.uint32(0xF0), np.uint32(0xF00), np.uint32(0xF000)


def biased_grid() -> np.ndarray:
    """Return 8 * grid + 9 as uint32 words: bytes 1, 9, 17, from which 8 or 10 is subtracted."""
    values = grids.grid_words("IQ1_M").view(np.int8)
    return np.ascontiguousarray(8 * values + 9).view("<u4")


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, mul, load_u8, load_u16 = seam.half, seam.mul, seam.load_u8, seam.load_u16
    grid = seam.table(biased_grid())
    minus = bytewise.build(seam).minus

    @seam.jit
    def word(raw, at, group, j):
        eight = j >> 1
        nibble = load_u8(raw, at + 32 + 2 * group + (eight >> 1)) >> (4 * (eight & 1))
        high = nibble & THREE_BITS
        index = load_u8(raw, at + 4 * group + eight) | (high << 8)
        negative = (nibble >> 3) & ONE
        values = grid((index << 1) | np.uint32(j & 1))
        return minus(values, EIGHTS + np.uint32(negative * TWO_EACH))

    @seam.jit
    def scales(raw, at, group):
        d = load_u16(raw, at + 48) >> 12
        d |= (load_u16(raw, at + 50) >> 8) & SECOND_NIBBLE
        d |= (load_u16(raw, at + 52) >> 4) & THIRD_NIBBLE
        d |= load_u16(raw, at + 54) & FOURTH_NIBBLE
        both = load_u16(raw, at + 48 + 2 * (group >> 1)) >> (6 * (group & 1))
        first = np.int32(((both & THREE_BITS) << 1) | ONE)
        second = np.int32((((both >> 3) & THREE_BITS) << 1) | ONE)
        return mul(half(np.uint32(d)), EIGHTH), first, second, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="IQ1_M", type_id=29, block_weights=256, block_bytes=56, has_offset=False, split_scales=True,
    largest_product=largest_product(scale=15, code=9), build=build,
)
