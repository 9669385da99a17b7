"""IQ2_XXS: 256 weights in 66 bytes, value = d/8 * (2s + 1) * sign * grid, s of 4 bits per group.

    0  d, fp16        2  per group 8 bytes: four grid indices, then 32 bits: four 7-bit sign codes and s in the top four

Each grid entry gives 8 magnitudes out of 8, 25, 43.
"""

import numpy as np

from strata.formats import bytewise, grids
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ZERO = np.float32(0.0)
EIGHTH = np.float32(0.125)
ONE = np.uint32(1)
SEVEN_BITS = np.uint32(0x7F)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, mul, load_u8, load_u16, load_u32 = seam.half, seam.mul, seam.load_u8, seam.load_u16, seam.load_u32
    grid, signs = seam.table(grids.grid_words("IQ2_XXS")), seam.table(grids.sign_words())
    signed = bytewise.build(seam).signed

    @seam.jit
    def word(raw, at, group, j):
        eight, part = j >> 1, np.uint32(j & 1)
        index = load_u8(raw, at + 2 + 8 * group + eight)
        code = (load_u32(raw, at + 6 + 8 * group) >> (7 * eight)) & SEVEN_BITS
        return signed(grid((index << 1) | part), signs((code << 1) | part))

    @seam.jit
    def scales(raw, at, group):
        s = load_u16(raw, at + 8 + 8 * group) >> 12
        scale = np.int32((s << 1) | ONE)
        return mul(half(load_u16(raw, at)), EIGHTH), scale, scale, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="IQ2_XXS", type_id=16, block_weights=256, block_bytes=66, has_offset=False, split_scales=False,
    largest_product=largest_product(scale=31, code=43), build=build,
)
