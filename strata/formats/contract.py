"""What a weight format is: how 32 stored weights become integers and scales.

A tensor's rows are stored as blocks of `block_weights` weights in `block_bytes` bytes.  Arithmetic looks at groups of 32
weights.  A format's factory `build(seam)` compiles, for one executor, the two helpers of a `BlockReader`:

    word(raw, at, group, j) -> int32           weights 4j .. 4j+3 (j = 0..7) of a group as four int8, weight 4j in the low byte
    scales(raw, at, group) -> (d, s0, s1, offset)
                                               d, offset: float32; s0, s1: int32 sub-scales of weights 0..15 and 16..31

`raw` is the tensor's bytes (uint8), `at` the byte offset of the stored block, `group` the index of the 32-group in it.
The exact value of weight i is  d * (s * q_i) + offset  with s = s0 for i < 16, else s1.  `d` is the stored scale,
multiplied by powers of two or small integers only where that is exact in float32.  Does not know: activations, tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

GROUP = 32
"""Weights per group: the unit of activation codes, integer dot products and lanes."""

LARGEST_ACTIVATION = 127
"""Largest magnitude of an activation code; -128 never occurs."""


def largest_product(scale: int, code: int) -> int:
    """Return the largest |s0 * dot(q[:16], x[:16]) + s1 * dot(q[16:], x[16:])| of a group.

    `scale` and `code` are the largest magnitudes of a format's sub-scales and weight codes.  Activations take either
    sign, so the bound is reached when all 32 terms are largest and agree in sign.
    """
    return GROUP * LARGEST_ACTIVATION * scale * code


@dataclass(frozen=True, slots=True)
class BlockReader:
    """A format compiled for one executor; see the module's docstring for the two signatures."""

    word: Callable
    scales: Callable


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """One block format of ggml.

    `largest_product` bounds |s0 * dot(q[:16], x[:16]) + s1 * dot(q[16:], x[16:])| over all codes |x| <= 127; it is below
    2^24, so the conversion of a group's integer to float32 is exact.  `has_offset` tells whether `offset` can be non-zero,
    `split_scales` whether s0 and s1 can differ.
    """

    name: str
    type_id: int
    block_weights: int
    block_bytes: int
    has_offset: bool
    split_scales: bool
    largest_product: int
    build: Callable[[SimpleNamespace], BlockReader]
