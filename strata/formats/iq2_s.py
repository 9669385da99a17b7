"""IQ2_S: 256 weights in 82 bytes, value = d/8 * (2s + 1) * sign * grid, s of 4 bits per 16 weights.

    0  d, fp16        2  low bytes of the grid indices[32], one per 8 weights        34 signs, one bit per weight
    66 high two bits of the indices[8]: one byte per group        74 s[8]: two per group

Each grid entry gives 8 magnitudes out of 8, 25, 43.
"""

import numpy as np

from strata.formats import bytewise, grids
from strata.formats.bytewise import NIBBLE
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ZERO = np.float32(0.0)
EIGHTH = np.float32(0.125)
ONE = np.uint32(1)
TWO_BITS = np.uint32(3)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, mul, load_u8, load_u16 = seam.half, seam.mul, seam.load_u8, seam.load_u16
    grid = seam.table(grids.grid_words("IQ2_S"))
    helpers = bytewise.build(seam)
    spread, signed = helpers.spread, helpers.signed

    @seam.jit
    def word(raw, at, group, j):
        eight, part = j >> 1, np.uint32(j & 1)
        high = (load_u8(raw, at + 66 + group) >> (2 * eight)) & TWO_BITS
        index = load_u8(raw, at + 2 + 4 * group + eight) | (high << 8)
        signs = load_u8(raw, at + 34 + 4 * group + eight) >> (4 * (j & 1))
        return signed(grid((index << 1) | part), spread(signs))

    @seam.jit
    def scales(raw, at, group):
        both = load_u8(raw, at + 74 + group)
        first = np.int32(((both & NIBBLE) << 1) | ONE)
        second = np.int32(((both >> 4) << 1) | ONE)
        return mul(half(load_u16(raw, at)), EIGHTH), first, second, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="IQ2_S", type_id=22, block_weights=256, block_bytes=82, has_offset=False, split_scales=True,
    largest_product=largest_product(scale=31, code=43), build=build,
)
