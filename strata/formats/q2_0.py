"""Q2_0: 64 weights in 18 bytes, value = d * (code - 1); d may be negative.

    0  d, fp16        2  codes[16]: weight 4i + k in bits 2k, 2k + 1 of byte i

Source: the layout is that of the model files; the gguf library does not know this type (gguf_types.py).
"""

import numpy as np

from strata.formats import bytewise
from strata.formats.bytewise import ONES, PAIRS
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ONE = np.int32(1)
ZERO = np.float32(0.0)
NIBBLE_EACH_HALF = np.uint32(0x000F000F)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, load_u8, load_u16 = seam.half, seam.load_u8, seam.load_u16
    minus = bytewise.build(seam).minus

    @seam.jit
    def word(raw, at, group, j):
        codes = load_u8(raw, at + 2 + 8 * group + j)
        pairs = (codes | (codes << 12)) & NIBBLE_EACH_HALF
        return minus((pairs | (pairs << 6)) & PAIRS, ONES)

    @seam.jit
    def scales(raw, at, group):
        return half(load_u16(raw, at)), ONE, ONE, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="Q2_0", type_id=42, block_weights=64, block_bytes=18, has_offset=False, split_scales=False,
    largest_product=largest_product(scale=1, code=2), build=build,
)
