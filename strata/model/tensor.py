"""One named weight of a model file: its encoded bytes, never expanded.

`raw` is a one-dimensional uint8 view of the mapped file, rows one after the other, each row a whole number of blocks.
Shapes are written outermost first: `[rows, columns]`, `[experts, rows, columns]`, `[entries]`.  Small float vectors
(norms, convolution taps, decay constants) can be widened to float32, exactly; anything larger must stay encoded.  Does
not know: block formats beyond their size, what a tensor is for.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from strata.errors import ModelFileError

FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
"""Bytes of one entry of the unquantised types."""

LARGEST_FLOATS = 1 << 20
"""Entries that `Tensor.floats` widens at most (4 MiB of float32): vectors, not matrices."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A named weight: type name (`Q4_K`, `BF16`, ...), shape outermost first, encoded bytes, file of origin."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    raw: np.ndarray
    path: Path

    @property
    def n_weights(self) -> int:
        return math.prod(self.shape)

    @property
    def columns(self) -> int:
        """Weights per row (the innermost dimension)."""
        return self.shape[-1]

    @property
    def rows(self) -> int:
        """Rows over all outer dimensions; 1 for a vector."""
        return math.prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        return self.raw.size // self.rows

    @property
    def is_quantised(self) -> bool:
        return self.type_name not in FLOAT_BYTES

    def part(self, index: int) -> "Tensor":
        """The `index`-th entry of the outermost dimension (one expert of a bank), as a view."""
        if not 0 <= index < self.shape[0]:
            raise IndexError(f"{self.name} has {self.shape[0]} parts, not one with index {index}")
        part_bytes = self.raw.size // self.shape[0]
        raw = self.raw[index * part_bytes : (index + 1) * part_bytes]
        return replace(self, name=f"{self.name}[{index}]", shape=self.shape[1:], raw=raw)

    def chosen(self, rows: np.ndarray, label: str) -> "Tensor":
        """A matrix of some rows of this one, copied in their packed form; `label` marks its name."""
        packed = np.ascontiguousarray(self.as_bytes()[rows]).reshape(-1)
        return replace(self, name=f"{self.name}[{label}]", shape=(len(rows), self.columns), raw=packed)

    def as_bytes(self) -> np.ndarray:
        """The encoded rows as a view [rows, row_bytes] uint8."""
        return self.raw.reshape(self.rows, self.row_bytes)

    def as_uint16(self) -> np.ndarray:
        """BF16 or F16 bits as a view of the tensor's shape, uint16."""
        return self._view(np.uint16, ("BF16", "F16"))

    def as_float32(self) -> np.ndarray:
        """F32 weights as a view of the tensor's shape, float32."""
        return self._view(np.float32, ("F32",))

    def floats(self) -> np.ndarray:
        """The weights widened to a contiguous float32 array of the tensor's shape; exact.

        For F32, F16 and BF16 tensors of at most `LARGEST_FLOATS` entries; raises ModelFileError otherwise.
        """
        if self.is_quantised:
            raise self._refusal(f"type {self.type_name} is a block format", "an F32, F16 or BF16 tensor is needed here")
        if self.n_weights > LARGEST_FLOATS:
            raise self._refusal(f"{self.n_weights:,} entries are not a small tensor", "read it through its raw bytes")
        if self.type_name == "F32":
            return np.ascontiguousarray(self.as_float32())
        bits = self.as_uint16()
        if self.type_name == "F16":
            return bits.view(np.float16).astype(np.float32)
        return (bits.astype(np.uint32) << 16).view(np.float32)

    def _view(self, dtype: type, allowed: tuple[str, ...]) -> np.ndarray:
        if self.type_name not in allowed:
            raise self._refusal(f"its type is {self.type_name}", f"this needs {' or '.join(allowed)}")
        return self.raw.view(dtype).reshape(self.shape)

    def _refusal(self, why: str, remedy: str) -> ModelFileError:
        return ModelFileError(f"tensor {self.name} of {self.path}", why, remedy)
