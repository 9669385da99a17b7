"""Q4_0: 32 weights in 18 bytes, value = d * (code - 8).

    0  d, fp16        2  codes[16]: weight i in the low nibble of byte i, weight i + 16 in the high nibble
"""

import numpy as np

from strata.formats import bytewise
from strata.formats.bytewise import NIBBLES
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ONE = np.int32(1)
ZERO = np.float32(0.0)
EIGHTS = np.uint32(0x08080808)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, load_u16, load_u32 = seam.half, seam.load_u16, seam.load_u32
    minus = bytewise.build(seam).minus

    @seam.jit
    def word(raw, at, group, j):
        pairs = load_u32(raw, at + 2 + 4 * (j & 3))
        return minus(((pairs >> (j & 4)) & NIBBLES), EIGHTS)

    @seam.jit
    def scales(raw, at, group):
        return half(load_u16(raw, at)), ONE, ONE, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="Q4_0", type_id=2, block_weights=32, block_bytes=18, has_offset=False, split_scales=False,
    largest_product=largest_product(scale=1, code=8), build=build,
)
