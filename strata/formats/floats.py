"""Weights that are stored as plain floats: no blocks, no scales.

Does not know: tensors; conversions are the seam's (`half`, `brain`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A float type of ggml: `bytes` per weight."""

    name: str
    type_id: int
    bytes: int


F32 = FloatFormat("F32", type_id=0, bytes=4)
F16 = FloatFormat("F16", type_id=1, bytes=2)
BF16 = FloatFormat("BF16", type_id=30, bytes=2)
