"""IQ3_XXS: 256 weights in 98 bytes, value = d/4 * (2s + 1) * sign * grid, s of 4 bits per group.

    0  d, fp16        2  grid indices[64], one per 4 weights
    66 per group 32 bits: four 7-bit sign codes, one per 8 weights, and s in the top four

Each grid entry gives 4 magnitudes out of 4, 12, 20, 28, 36, 44, 52, 62.
"""

import numpy as np

from strata.formats import bytewise, grids
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ZERO = np.float32(0.0)
QUARTER = np.float32(0.25)
ONE = np.uint32(1)
SEVEN_BITS = np.uint32(0x7F)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, mul, load_u8, load_u16, load_u32 = seam.half, seam.mul, seam.load_u8, seam.load_u16, seam.load_u32
    grid, signs = seam.table(grids.grid_words("IQ3_XXS")), seam.table(grids.sign_words())
    signed = bytewise.build(seam).signed

    @seam.jit
    def word(raw, at, group, j):
        index = load_u8(raw, at + 2 + 8 * group + j)
        code = (load_u32(raw, at + 66 + 4 * group) >> (7 * (j >> 1))) & SEVEN_BITS
        return signed(grid(index), signs((code << 1) | np.uint32(j & 1)))

    @seam.jit
    def scales(raw, at, group):
        s = load_u16(raw, at + 68 + 4 * group) >> 12
        scale = np.int32((s << 1) | ONE)
        return mul(half(load_u16(raw, at)), QUARTER), scale, scale, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="IQ3_XXS", type_id=18, block_weights=256, block_bytes=98, has_offset=False, split_scales=False,
    largest_product=largest_product(scale=31, code=62), build=build,
)
