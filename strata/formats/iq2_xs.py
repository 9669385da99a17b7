"""IQ2_XS: 256 weights in 74 bytes, value = d/8 * (2s + 1) * sign * grid, s of 4 bits per 16 weights.

    0  d, fp16        2  per 8 weights 16 bits: 9-bit grid index, 7-bit sign code on top        66 s[8]: two per group

Each grid entry gives 8 magnitudes out of 8, 25, 43.
"""

import numpy as np

from strata.formats import bytewise, grids
from strata.formats.bytewise import NIBBLE
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ZERO = np.float32(0.0)
EIGHTH = np.float32(0.125)
ONE = np.uint32(1)
NINE_BITS = np.uint32(0x1FF)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, mul, load_u8, load_u16 = seam.half, seam.mul, seam.load_u8, seam.load_u16
    grid, signs = seam.table(grids.grid_words("IQ2_XS")), seam.table(grids.sign_words())
    signed = bytewise.build(seam).signed

    @seam.jit
    def word(raw, at, group, j):
        both, part = load_u16(raw, at + 2 + 8 * group + 2 * (j >> 1)), np.uint32(j & 1)
        index, code = both & NINE_BITS, both >> 9
        return signed(grid((index << 1) | part), signs((code << 1) | part))

    @seam.jit
    def scales(raw, at, group):
        both = load_u8(raw, at + 66 + group)
        first = np.int32(((both & NIBBLE) << 1) | ONE)
        second = np.int32(((both >> 4) << 1) | ONE)
        return mul(half(load_u16(raw, at)), EIGHTH), first, second, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="IQ2_XS", type_id=17, block_weights=256, block_bytes=74, has_offset=False, split_scales=True,
    largest_product=largest_product(scale=31, code=43), build=build,
)
