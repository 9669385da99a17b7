"""Q5_0: 32 weights in 22 bytes, value = d * (code - 16).

    0  d, fp16        2  high bits, 32 bits: bit i is bit 4 of code i        6  low nibbles[16], as in Q4_0
"""

import numpy as np

from strata.formats import bytewise
from strata.formats.bytewise import NIBBLES
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ONE = np.int32(1)
ZERO = np.float32(0.0)
SIXTEENS = np.uint32(0x10101010)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, load_u16, load_u32 = seam.half, seam.load_u16, seam.load_u32
    helpers = bytewise.build(seam)
    minus, spread = helpers.minus, helpers.spread

    @seam.jit
    def word(raw, at, group, j):
        pairs = load_u32(raw, at + 6 + 4 * (j & 3))
        low = (pairs >> (j & 4)) & NIBBLES
        high = spread(load_u32(raw, at + 2) >> (4 * j))
        return minus(low | (high << 4), SIXTEENS)

    @seam.jit
    def scales(raw, at, group):
        return half(load_u16(raw, at)), ONE, ONE, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="Q5_0", type_id=6, block_weights=32, block_bytes=22, has_offset=False, split_scales=False,
    largest_product=largest_product(scale=1, code=16), build=build,
)
