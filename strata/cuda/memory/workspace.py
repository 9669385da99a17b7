"""Buffers of a stage's windows on a card: by name, grown when a wider window comes.

Growing a buffer drops every prepared program, whose launches hold the old addresses; `generation` counts that.  A *lane* holds
what must outlive its window until it is committed: its index tables and the inputs of its recurrent layers.
Does not know: launches.
"""

from dataclasses import dataclass

import numpy as np

from strata.cuda.card.device import CudaDevice
from strata.cuda.memory.window_tables import WindowTables
from strata.cuda.packed.products import Coded, Lists, make_coded, make_lists
from strata.rows import Window

PLACES = 8
"""Rows and segments of a decode window at most."""


class Workspace:
    """Named buffers of float32 (or another type) values per row."""

    def __init__(self, device: CudaDevice, purpose: str) -> None:
        self.device, self.purpose, self.generation = device, purpose, 0
        self._arrays: dict[str, object] = {}
        self._n_entries: dict[str, int] = {}

    def get(self, name: str, n_values: int, dtype=np.float32):
        """Return a flat buffer of n_values at least."""
        array = self._arrays.get(name)
        if array is None or array.size < n_values:
            self._grow(name, lambda purpose: self.device.empty(purpose, n_values, dtype))
        return self._arrays[name]

    def coded(self, name: str, n_rows: int, n: int) -> Coded:
        """Return coded activations for n_rows rows of n values at least."""
        held = self._arrays.get(name)
        if held is None or held.n_rows < n_rows:
            self._grow(name, lambda purpose: make_coded(self.device, purpose, max(n_rows, PLACES), n))
        held = self._arrays[name]
        return Coded(held.codes, held.turned, held.scales, held.sums, n_rows, n)

    def lists(self, name: str, n_experts: int, n_entries: int) -> Lists:
        """Return lists for exactly n_entries entries of at most n_experts experts."""
        key = f"{name} of {n_entries}"
        if key not in self._arrays:
            self._grow(key, lambda purpose: make_lists(self.device, purpose, n_experts, n_entries))
        return self._arrays[key]

    def constant(self, name: str, values: np.ndarray):
        """Return an uploaded constant."""
        if name not in self._arrays:
            self._grow(name, lambda purpose: self.device.upload(purpose, values))
        return self._arrays[name]

    def close(self) -> None:
        """Drop every buffer; nothing may be running."""
        names = tuple(self._arrays)
        self._arrays.clear()
        self.generation += 1
        for name in names:
            self.device.give_back(f"{self.purpose}: {name}")

    def _grow(self, name: str, make) -> None:
        purpose = f"{self.purpose}: {name}"
        if name in self._arrays:
            self.device.synchronise()
            del self._arrays[name]
            self.device.give_back(purpose)
            self.generation += 1
        self._arrays[name] = make(purpose)


@dataclass(slots=True, eq=False)
class Lane:
    """Index arrays of one window on the card, in one block, and its host copy in pinned memory.

    With `n_segments` places; surplus segments have no rows.  kept int32 [n_segments] is filled at commit.
    """

    number: int
    n_rows: int
    n_segments: int
    staged: np.ndarray
    block: object
    tables: WindowTables
    logit_rows: object
    kept: object

    def fill(self, device: CudaDevice, window: Window) -> None:
        """Send a window's index arrays."""
        n, s, w = self.n_rows, self.n_segments, window
        self.staged[:] = 0
        parts = (w.tokens, w.slots, w.positions, w.segment_of_row)
        for i, part in enumerate(parts):
            self.staged[i * n : i * n + n] = part
        for i, part in enumerate((w.first, w.count, w.segment_slot)):
            self.staged[4 * n + i * s : 4 * n + i * s + len(part)] = part
        at = 4 * n + 4 * s
        self.staged[at : at + len(w.logit_rows)] = w.logit_rows
        self.block.copy_to_device(self.staged, stream=device.stream)

    def fill_kept(self, device: CudaDevice, kept: np.ndarray) -> None:
        """Send how many rows of each segment are kept."""
        at = 4 * self.n_rows + 3 * self.n_segments
        self.staged[at : at + self.n_segments] = 0
        self.staged[at : at + len(kept)] = kept
        self.block.copy_to_device(self.staged, stream=device.stream)


def make_lane(device: CudaDevice, purpose: str, number: int, n_rows: int, n_segments: int) -> Lane:
    """Allocate a lane for windows of exactly n_rows rows in up to n_segments segments."""
    n_words = 5 * n_rows + 4 * n_segments
    block, n, s = device.zeros(purpose, n_words, np.int32), n_rows, n_segments
    views = [block[i * n : (i + 1) * n] for i in range(4)] + [block[4 * n + i * s : 4 * n + (i + 1) * s] for i in range(4)]
    tables = WindowTables(n_rows, n_segments, *views[:7])
    return Lane(number, n_rows, n_segments, device.pinned(n_words, np.int32), block, tables, block[4 * n + 4 * s :], views[7])
