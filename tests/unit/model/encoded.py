"""Float weights to the encoded bytes of a weight type, for test files.

Types that the gguf library can quantise are quantised by it.  For the others the bytes are random and only the stored
scales are set, to a small finite value: such weights are valid but have nothing to do with the given values.
"""

import math

import gguf
import numpy as np

from strata.formats.floats import FloatFormat
from strata.formats.table import by_name

QUANTISED_BY_GGUF = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_0", "Q5_1"}

SCALE_BYTES = {
    "Q2_0": (0,), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,),
    "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,),
}  # fmt: skip
"""Where in a block its fp16 scale (and minimum) stand."""


def encode(values: np.ndarray, type_name: str, seed: int) -> np.ndarray:
    """The bytes of `values` in a weight type, one-dimensional uint8."""
    kind = by_name(type_name)
    if type_name in QUANTISED_BY_GGUF:
        encoded = gguf.quants.quantize(values, gguf.GGMLQuantizationType(kind.type_id))
        return np.ascontiguousarray(encoded).reshape(-1).view(np.uint8)
    if isinstance(kind, FloatFormat) or values.shape[-1] % kind.block_weights:
        raise ValueError(f"rows of {values.shape[-1]} do not divide into {type_name} blocks")
    n_blocks = math.prod(values.shape) // kind.block_weights
    blocks = np.random.default_rng([seed, kind.type_id]).integers(0, 256, (n_blocks, kind.block_bytes), dtype=np.uint8)
    scales = np.random.default_rng([seed, 77]).uniform(1e-4, 1e-3, n_blocks).astype(np.float16)
    if type_name == "IQ1_M":
        _set_iq1_m_scales(blocks, scales)
    else:
        for at in SCALE_BYTES[type_name]:
            blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def _set_iq1_m_scales(blocks: np.ndarray, scales: np.ndarray) -> None:
    """IQ1_M spreads its fp16 scale over the top four bits of the four uint16 at the end of a block, lowest first."""
    words = np.ascontiguousarray(blocks[:, 48:56]).view(np.uint16)
    bits = scales.view(np.uint16)
    for index in range(4):
        words[:, index] = (words[:, index] & 0x0FFF) | (((bits >> (4 * index)) & 0xF) << 12)
    blocks[:, 48:56] = words.view(np.uint8)
