"""Q8_0: 32 weights in 34 bytes, value = d * q.

    0  d, fp16        2  q[32], int8

ggml's quantiser writes codes in [-127, 127].  A stored -128 is passed on as it is; a vector kernel that multiplies
magnitudes must take the weights', not the activations', as the unsigned operand.
"""

import numpy as np

from strata.formats.contract import BlockReader, WeightFormat, largest_product

ONE = np.int32(1)
ZERO = np.float32(0.0)


def build(seam) -> BlockReader:
    """Compile `word` and `scales` for one executor (contract.py)."""
    half, load_u16, load_u32 = seam.half, seam.load_u16, seam.load_u32

    @seam.jit
    def word(raw, at, group, j):
        return np.int32(load_u32(raw, at + 2 + 4 * j))

    @seam.jit
    def scales(raw, at, group):
        return half(load_u16(raw, at)), ONE, ONE, ZERO

    return BlockReader(word, scales)


FORMAT = WeightFormat(
    name="Q8_0", type_id=8, block_weights=32, block_bytes=34, has_offset=False, split_scales=False,
    largest_product=largest_product(scale=1, code=128), build=build,
)
