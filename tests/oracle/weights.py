"""Model files as a dictionary of keys and a dictionary of float32 tensors.

Reads GGUF through the gguf library and decodes every type with its own formulas; only Q2_0 (type 42), which the
library may not know, is decoded here: 64 weights in 18 bytes, fp16 scale d, then 2-bit codes, weight = (code - 1) * d.
Tensors come as [out, in] (experts [E, out, in]), as numpy sees a GGUF dimension list read backwards.
Does not know: the engine's own formats, on purpose.
"""

from collections.abc import Iterable
from pathlib import Path

import gguf
import numpy as np

ARCHITECTURE = "qwen4exp."
Q2_0_TYPE = 42
Q2_0_WEIGHTS, Q2_0_BYTES = 64, 18


def teach_q2_0() -> None:
    """Add type 42 to the gguf library's tables if it is missing; must run before a file is opened."""
    kinds = gguf.GGMLQuantizationType
    if Q2_0_TYPE not in kinds._value2member_map_:
        member = int.__new__(kinds, Q2_0_TYPE)
        member._name_, member._value_ = "Q2_0", Q2_0_TYPE
        kinds._member_names_.append("Q2_0")
        kinds._member_map_["Q2_0"] = member
        kinds._value2member_map_[Q2_0_TYPE] = member
    gguf.GGML_QUANT_SIZES.setdefault(kinds(Q2_0_TYPE), (Q2_0_WEIGHTS, Q2_0_BYTES))


def decode_q2_0(data: np.ndarray) -> np.ndarray:
    """Decode rows of Q2_0 blocks: uint8 [..., n * 18] -> float32 [..., n * 64]."""
    blocks = np.ascontiguousarray(data).reshape(-1, Q2_0_BYTES)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    codes = (blocks[:, 2:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & 3
    values = (codes.reshape(-1, Q2_0_WEIGHTS).astype(np.float32) - np.float32(1)) * scale
    return values.reshape(*data.shape[:-1], data.shape[-1] // Q2_0_BYTES * Q2_0_WEIGHTS)


def decode(data: np.ndarray, type_id: int) -> np.ndarray:
    """Decode a stored tensor of any ggml type to float32, [..., stored bytes] -> [..., weights]."""
    if type_id == Q2_0_TYPE:
        return decode_q2_0(data)
    return np.asarray(gguf.quants.dequantize(data, gguf.GGMLQuantizationType(type_id)), dtype=np.float32)


def load_weights(paths: Iterable[Path]) -> tuple[dict, dict[str, np.ndarray]]:
    """Read files as shards of one model -> keys (`qwen4exp.` left out), tensors by name in float32.

    Keys of later files win; a tensor name in two files is an error.
    """
    teach_q2_0()
    keys: dict = {}
    tensors: dict[str, np.ndarray] = {}
    for path in paths:
        reader = gguf.GGUFReader(path)
        for name, field in reader.fields.items():
            if name.startswith(ARCHITECTURE):
                keys[name.removeprefix(ARCHITECTURE)] = field.contents()
        for tensor in reader.tensors:
            if tensor.name in tensors:
                raise ValueError(f"tensor={tensor.name}: found in two files, {path} is the second")
            tensors[tensor.name] = decode(tensor.data, int(tensor.tensor_type)).copy()
    return keys, tensors
