"""Q3_K: 256 weights in 110 bytes, value = d * (s - 32) * (code - 4), s of 6 bits per 16 weights.

    0   high bits[32]: bit g of byte i is bit 2 of the code of weight i of group g
    32  low bits[64]: groups 0..3 share bytes 0..31, groups 4..7 bytes 32..63; group g has bits 2 (g mod 4) and the next
    96  low nibbles of s[8]: s[k] and s[k + 8]        104  high two bits of s[4]: s[k], s[k + 4], s[k + 8], s[k + 12]
    108 d, fp16
"""

import numpy as np

from strata.formats import bytewise
from strata.formats.bytewise import BYTE, ONES, PAIRS
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ZERO = np.float32(0.0)
FOURS = np.uint32(0x04040404)
MIDDLE = np.int32(32)
NIBBLE_PAIR = np.uint32(0x0F0F)
TWO_BIT_PAIR = np.uint32(0x0303)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, load_u16, load_u32 = seam.half, seam.load_u16, seam.load_u32
    minus = bytewise.build(seam).minus

    @seam.jit
    def word(raw, at, group, j):
        low = load_u32(raw, at + 32 + 32 * (group >> 2) + 4 * j)
        low = (low >> (2 * (group & 3))) & PAIRS
        high = (load_u32(raw, at + 4 * j) >> group) & ONES
        return minus(low | (high << 2), FOURS)

    @seam.jit
    def scales(raw, at, group):
        low = load_u16(raw, at + 96 + 2 * (group & 3))
        low = (low >> (group & 4)) & NIBBLE_PAIR
        high = load_u16(raw, at + 104 + 2 * (group & 1))
        high = (high >> (2 * (group >> 1))) & TWO_BIT_PAIR
        both = low | (high << 4)
        first, second = np.int32(both & BYTE), np.int32(both >> 8)
        return half(load_u16(raw, at + 108)), np.int32(first - MIDDLE), np.int32(second - MIDDLE), ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="Q3_K", type_id=11, block_weights=256, block_bytes=110, has_offset=False, split_scales=True,
    largest_product=largest_product(scale=32, code=4), build=build,
)
