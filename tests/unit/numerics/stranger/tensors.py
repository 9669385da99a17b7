"""A model file's tensors as the stranger takes them: encoded rows for products and look-ups, widened vectors."""

from collections.abc import Iterable
from pathlib import Path

import gguf
import numpy as np

from tests.oracle.weights import ARCHITECTURE, teach_q2_0
from tests.unit.numerics.stranger.arithmetic import F32
from tests.unit.numerics.stranger.products import WIDENED, look_up, times

BITS = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}


class Tensors:
    """`keys` without the architecture's prefix; tensors by name, rows as bits (floats) or bytes (blocks)."""

    def __init__(self, paths: Iterable[Path]) -> None:
        teach_q2_0()
        self.keys: dict = {}
        self._rows: dict[str, tuple[str, np.ndarray]] = {}
        for path in paths:
            reader = gguf.GGUFReader(path)
            self.keys |= {n.removeprefix(ARCHITECTURE): f.contents() for n, f in reader.fields.items() if n.startswith(ARCHITECTURE)}
            for tensor in reader.tensors:
                kind = tensor.tensor_type.name
                data = np.ascontiguousarray(tensor.data)
                self._rows[tensor.name] = kind, data.view(BITS[kind]) if kind in BITS else data

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def names(self) -> list[str]:
        return list(self._rows)

    def vector(self, name: str) -> np.ndarray:
        """A float tensor widened to float32."""
        kind, rows = self._rows[name]
        return WIDENED[kind](rows)

    def times(self, name: str, x, mode: str, span: int = 32, expert: int | None = None, in_pool: bool = False) -> np.ndarray:
        """Rows x [n, in] times a matrix, or one expert's matrix of a bank, on a device or in the pool: float32 [n, out]."""
        kind, rows = self._rows[name]
        return times(kind, np.atleast_2d(rows if expert is None else rows[expert]), np.asarray(x, F32), mode, span, mode == "device" and not in_pool)

    def look_up(self, name: str, indices) -> np.ndarray:
        """Rows of a table: float32 [n, columns]."""
        kind, rows = self._rows[name]
        return look_up(kind, rows[indices])
