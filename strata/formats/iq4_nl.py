"""IQ4_NL: 32 weights in 18 bytes, value = d * level[code], with 16 uneven levels from -127 to 113.

    0  d, fp16        2  codes[16]: weight i in the low nibble of byte i, weight i + 16 in the high nibble
"""

import numpy as np

from strata.formats.bytewise import BYTE, NIBBLES
from strata.formats.contract import BlockReader, WeightFormat, largest_product

ONE = np.int32(1)
ZERO = np.float32(0.0)


def level_pairs() -> np.ndarray:
    """Return the levels of two codes per entry: uint32 [256], entry a + 16 b holds level[a] + 256 level[b] as bytes."""
    from gguf.quants import IQ4_NL

    levels = np.array(IQ4_NL.kvalues, np.int8).view(np.uint8).astype(np.uint32)
    return (levels[None, :] | levels[:, None] << np.uint32(8)).reshape(256)


def build_levels(seam):
    """Compile `levels(nibbles) -> int32`: four codes in the low nibbles of four bytes become four int8 levels."""
    pair = seam.table(level_pairs())

    @seam.jit
    def levels(nibbles):
        folded = nibbles | (nibbles >> 4)
        low = pair(folded & BYTE)
        high = pair((folded >> 16) & BYTE)
        return np.int32(low | (high << 16))

    return levels


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, load_u16, load_u32 = seam.half, seam.load_u16, seam.load_u32
    levels = build_levels(seam)

    @seam.jit
    def word(raw, at, group, j):
        pairs = load_u32(raw, at + 2 + 4 * (j & 3))
        return levels((pairs >> (j & 4)) & NIBBLES)

    @seam.jit
    def scales(raw, at, group):
        return half(load_u16(raw, at)), ONE, ONE, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="IQ4_NL", type_id=20, block_weights=32, block_bytes=18, has_offset=False, split_scales=False,
    largest_product=largest_product(scale=1, code=127), build=build,
)
