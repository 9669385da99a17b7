"""Q5_K: 256 weights in 176 bytes, value = d * s * code - dmin * m, s and m of 6 bits per group, as in Q4_K.

    0  d, fp16        2  dmin, fp16        4  s and m of the 8 groups, packed in 12 bytes
    16 high bits[32]: bit g of byte i is bit 4 of the code of weight i of group g
    48 low nibbles[128]: groups 2i and 2i + 1 share 32 bytes, group 2i in the low nibbles
"""

import numpy as np

from strata.formats.bytewise import NIBBLES, ONES
from strata.formats.contract import BlockReader, WeightFormat, largest_product
from strata.formats.q4_k import build_scales


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    load_u32 = seam.load_u32

    @seam.jit
    def word(raw, at, group, j):
        pairs = load_u32(raw, at + 48 + 32 * (group >> 1) + 4 * j)
        low = (pairs >> (4 * (group & 1))) & NIBBLES
        high = (load_u32(raw, at + 16 + 4 * j) >> group) & ONES
        return np.int32(low | (high << 4))

    return BlockReader(word, build_scales(seam))


FORMAT = WeightFormat(
    name="Q5_K", type_id=13, block_weights=256, block_bytes=176, has_offset=True, split_scales=False,
    largest_product=largest_product(scale=63, code=31), build=build,
)
