"""Q5_1: 32 weights in 24 bytes, value = d * code + m.

    0  d, fp16    2  m, fp16    4  high bits, 32 bits: bit i is bit 4 of code i    8  low nibbles[16], as in Q4_0
"""

import numpy as np

from strata.formats import bytewise
from strata.formats.bytewise import NIBBLES
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ONE = np.int32(1)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, load_u16, load_u32 = seam.half, seam.load_u16, seam.load_u32
    spread = bytewise.build(seam).spread

    @seam.jit
    def word(raw, at, group, j):
        pairs = load_u32(raw, at + 8 + 4 * (j & 3))
        low = (pairs >> (j & 4)) & NIBBLES
        high = spread(load_u32(raw, at + 4) >> (4 * j))
        return np.int32(low | (high << 4))

    @seam.jit
    def scales(raw, at, group):
        return half(load_u16(raw, at)), ONE, ONE, half(load_u16(raw, at + 2))

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="Q5_1", type_id=7, block_weights=32, block_bytes=24, has_offset=True, split_scales=False,
    largest_product=largest_product(scale=1, code=31), build=build,
)
