"""Where a layer's experts lie as compiled code reads it: an address for each part of each expert, made once and kept up to date.

Addresses are those of the arena's banks, which live as long as the arena.  Does not know: formats, who reads.
"""

from collections.abc import Iterable

import numpy as np

from strata.cpu_pool.arena import COPIES, PARTS


class ExpertAddresses:
    """The addresses of the experts of an arena, layer by layer, from a layer's first use on."""

    def __init__(self, arena) -> None:
        self.arena = arena
        self._of: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def of(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Return int64 [experts, 3]: where gate, up and down lie; and bool [experts]: whether in the arena's copies."""
        found = self._of.get(layer)
        if found is None:
            n = self.arena.banks.n_experts(layer)
            found = self._of[layer] = np.empty((n, len(PARTS)), np.int64), np.empty(n, np.bool_)
            try:
                self.renew(layer, range(n))
            except Exception:
                del self._of[layer]
                raise
        return found

    def renew(self, layer: int, experts: Iterable[int]) -> None:
        """Ask the arena again where experts lie, that moved since."""
        if layer not in self._of:
            return
        addresses, copied = self._of[layer]
        banks = {}
        for expert in experts:
            bank, number = self.arena.source(layer, expert)
            if bank not in banks:
                arrays = [self.arena.bank(bank, layer, part) for part in PARTS]
                banks[bank] = np.array([a.ctypes.data for a in arrays], np.int64), np.array([a.shape[1] for a in arrays], np.int64)
            first, size = banks[bank]
            addresses[expert], copied[expert] = first + number * size, bank == COPIES
