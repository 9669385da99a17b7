"""Residual rows of windows kept on the card until the draft layer has made its cells of them.

One array; a window's rows lie together in it, at the first gap that takes them.  Where there is none the array grows, what it
holds is copied, and `generation` counts that: prepared launches hold the old address.  Shapes: flat, rows of `width` floats.
Does not know: windows, cells.
"""

import numpy as np

from strata.cuda.card.device import CudaDevice

LEAST = 2048
"""Rows that there is room for from the start, where the sessions have as many positions."""


class HeldRows:
    """Rows in one array on a card; each run of rows is known by its first one."""

    def __init__(self, device: CudaDevice, purpose: str, width: int, most_rows: int) -> None:
        self.device, self.purpose, self.width, self.generation = device, purpose, width, 0
        self.capacity = max(1, min(LEAST, most_rows))
        self.array = device.empty(self._named(), self.capacity * width, np.float32)
        self._runs: dict[int, int] = {}

    def keep(self, rows, n_rows: int) -> int:
        """Copy n_rows rows of an array on the card, in its stream; return the first row of the copy."""
        first = self._gap(n_rows)
        if first + n_rows > self.capacity:
            self._grow(first + n_rows)
        n = n_rows * self.width
        self.array[first * self.width : first * self.width + n].copy_to_device(rows[:n], stream=self.device.stream)
        self._runs[first] = n_rows
        return first

    def release(self, first: int) -> None:
        """Forget the run that begins at a row; what was sent to the stream before may still read it."""
        del self._runs[first]

    def close(self) -> None:
        """Give the memory back."""
        self._runs.clear()
        self.array = None
        self.device.give_back(self._named())

    def _gap(self, n_rows: int) -> int:
        at = 0
        for first in sorted(self._runs):
            if first - at >= n_rows:
                break
            at = first + self._runs[first]
        return at

    def _grow(self, n_rows: int) -> None:
        old, purpose = self.array, self._named()
        self.capacity = max(2 * self.capacity, n_rows)
        try:
            self.array = self.device.empty(self._named(), self.capacity * self.width, np.float32)
        except Exception:
            self.capacity = old.size // self.width
            raise
        self.array[: old.size].copy_to_device(old, stream=self.device.stream)
        self.device.synchronise()
        del old
        self.device.give_back(purpose)
        self.generation += 1

    def _named(self) -> str:
        return f"{self.purpose}: {self.capacity}"
