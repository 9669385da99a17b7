"""IQ3_S: 256 weights in 110 bytes, value = d * (2s + 1) * sign * grid, s of 4 bits per group.

    0  d, fp16        2  low bytes of the grid indices[64], one per 4 weights
    66 high bits of the indices[8]: one byte per group        74 signs, one bit per weight
    106 s[4]: group 2i in the low nibble

Each grid entry gives 4 magnitudes, odd numbers from 1 to 15.
"""

import numpy as np

from strata.formats import bytewise, grids
from strata.formats.bytewise import NIBBLE
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ZERO = np.float32(0.0)
ONE = np.uint32(1)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, load_u8, load_u16 = seam.half, seam.load_u8, seam.load_u16
    grid = seam.table(grids.grid_words("IQ3_S"))
    helpers = bytewise.build(seam)
    spread, signed = helpers.spread, helpers.signed

    @seam.jit
    def word(raw, at, group, j):
        high = (load_u8(raw, at + 66 + group) >> j) & ONE
        index = load_u8(raw, at + 2 + 8 * group + j) | (high << 8)
        signs = load_u8(raw, at + 74 + 4 * group + (j >> 1)) >> (4 * (j & 1))
        return signed(grid(index), spread(signs))

    @seam.jit
    def scales(raw, at, group):
        s = (load_u8(raw, at + 106 + (group >> 1)) >> (4 * (group & 1))) & NIBBLE
        scale = np.int32((s << 1) | ONE)
        return half(load_u16(raw, at)), scale, scale, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="IQ3_S", type_id=21, block_weights=256, block_bytes=110, has_offset=False, split_scales=False,
    largest_product=largest_product(scale=31, code=15), build=build,
)
