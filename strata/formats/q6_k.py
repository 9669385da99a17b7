"""Q6_K: 256 weights in 210 bytes, value = d * s * (code - 32), s an int8 per 16 weights.

    0   low nibbles[128]: groups 0..3 in bytes 0..63, groups 4..7 in 64..127; of four, groups 0 and 1 have the low
        nibbles of bytes 0..31 and 32..63, groups 2 and 3 the high ones
    128 high two bits[64]: groups 0..3 share bytes 0..31, groups 4..7 bytes 32..63; group g has bits 2 (g mod 4) on
    192 s[16], int8        208 d, fp16

The largest product of all formats, 32 * 127 * 128 * 32 = 16,646,144, comes from s = -128 and code - 32 = -32.
"""

import numpy as np

from strata.formats import bytewise
from strata.formats.bytewise import BYTE, NIBBLES, PAIRS
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ZERO = np.float32(0.0)
THIRTY_TWOS = np.uint32(0x20202020)
SIGN = np.uint32(0x80)
BIAS = np.int32(128)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, load_u8, load_u16, load_u32 = seam.half, seam.load_u8, seam.load_u16, seam.load_u32
    minus = bytewise.build(seam).minus

    @seam.jit
    def word(raw, at, group, j):
        low = load_u32(raw, at + 64 * (group >> 2) + 32 * (group & 1) + 4 * j)
        low = (low >> (2 * (group & 2))) & NIBBLES
        high = load_u32(raw, at + 128 + 32 * (group >> 2) + 4 * j)
        high = (high >> (2 * (group & 3))) & PAIRS
        return minus(low | (high << 4), THIRTY_TWOS)

    @seam.jit
    def widened(byte):
        return np.int32(np.int32(byte ^ SIGN) - BIAS)

    @seam.jit
    def scales(raw, at, group):
        both = load_u16(raw, at + 192 + 2 * group)
        return half(load_u16(raw, at + 208)), widened(both & BYTE), widened(both >> 8), ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="Q6_K", type_id=14, block_weights=256, block_bytes=210, has_offset=False, split_scales=True,
    largest_product=largest_product(scale=128, code=32), build=build,
)
