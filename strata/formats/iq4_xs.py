"""IQ4_XS: 256 weights in 136 bytes, value = d * (s - 32) * level[code], levels as in IQ4_NL, s of 6 bits per group.

    0  d, fp16        2  high two bits of s, 2 bits per group        4  low nibbles of s[4], group 2i in the low nibble
    8  codes[128]: 16 bytes per group, laid out as in IQ4_NL
"""

import numpy as np

from strata.formats.bytewise import NIBBLE, NIBBLES
from strata.formats.contract import BlockReader, WeightFormat, largest_product
from strata.formats.iq4_nl import build_levels

ZERO = np.float32(0.0)
MIDDLE = np.int32(32)
TWO_BITS = np.uint32(3)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, load_u8, load_u16, load_u32 = seam.half, seam.load_u8, seam.load_u16, seam.load_u32
    levels = build_levels(seam)

    @seam.jit
    def word(raw, at, group, j):
        pairs = load_u32(raw, at + 8 + 16 * group + 4 * (j & 3))
        return levels((pairs >> (j & 4)) & NIBBLES)

    @seam.jit
    def scales(raw, at, group):
        low = (load_u8(raw, at + 4 + (group >> 1)) >> (4 * (group & 1))) & NIBBLE
        high = (load_u16(raw, at + 2) >> (2 * group)) & TWO_BITS
        scale = np.int32(np.int32(low | (high << 4)) - MIDDLE)
        return half(load_u16(raw, at)), scale, scale, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="IQ4_XS", type_id=23, block_weights=256, block_bytes=136, has_offset=False, split_scales=False,
    largest_product=largest_product(scale=32, code=127), build=build,
)
