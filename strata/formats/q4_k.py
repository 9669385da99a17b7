"""Q4_K: 256 weights in 144 bytes, value = d * s * code - dmin * m, s and m of 6 bits per group.

    0  d, fp16        2  dmin, fp16        4  s and m of the 8 groups, packed in 12 bytes
    16 codes[128]: groups 2i and 2i + 1 share 32 bytes, group 2i in the low nibbles

dmin * m has at most 11 + 6 significant bits, so the offset is exact in float32.
"""

import numpy as np

from strata.formats.bytewise import NIBBLE, NIBBLES
from strata.formats.contract import BlockReader, WeightFormat, largest_product

SIX_BITS = np.uint32(0x3F)
HIGH_BITS = np.uint32(0x30)


def build_scales(seam):
    """Compile `scales` of a block that starts with d, dmin and the 12 packed bytes (Q4_K, Q5_K).

    With bytes a, b, c = packed[k], packed[4 + k], packed[8 + k]: group k < 4 has s, m in the low six bits of a, b;
    group k + 4 has their low nibbles in c's low and high nibble, and their two high bits on top of a and b.
    """
    half, mul, load_u8, load_u16 = seam.half, seam.mul, seam.load_u8, seam.load_u16

    @seam.jit
    def scales(raw, at, group):
        k = group & 3
        a, b, c = load_u8(raw, at + 4 + k), load_u8(raw, at + 8 + k), load_u8(raw, at + 12 + k)
        if group < 4:
            s, m = a & SIX_BITS, b & SIX_BITS
        else:
            s = (c & NIBBLE) | ((a >> 2) & HIGH_BITS)
            m = (c >> 4) | ((b >> 2) & HIGH_BITS)
        scale = np.int32(s)
        return half(load_u16(raw, at)), scale, scale, mul(half(load_u16(raw, at + 2)), np.float32(-np.int32(m)))

    return scales


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    load_u32 = seam.load_u32

    @seam.jit
    def word(raw, at, group, j):
        pairs = load_u32(raw, at + 16 + 32 * (group >> 1) + 4 * j)
        return np.int32((pairs >> (4 * (group & 1))) & NIBBLES)

    return BlockReader(word, build_scales(seam))


FORMAT = WeightFormat(
    name="Q4_K", type_id=12, block_weights=256, block_bytes=144, has_offset=True, split_scales=False,
    largest_product=largest_product(scale=63, code=15), build=build,
)
