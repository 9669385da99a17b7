"""Copies of experts in RAM that cards read by themselves: pages locked with the driver, and where a card sees them.

Each card is asked for an arena's lockable copies: the first one has the driver lock them, for all cards, and each says where it
sees them.  A copy that the driver refuses is left out, which is a note and no error; the CPU pool computes what it holds.
Does not know: slots, windows, how a card copies.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from strata.cpu_pool.arena import COPIES, PARTS
from strata.experts.filling import MIB

UNIT = 16
"""Bytes that a card copies at a time: blobs lie at multiples of it, or a card does not fetch them."""
NOWHERE = 0


class Registrar(Protocol):
    """A card that locks pages of the host, or finds them locked (`strata.cuda.card.device.CudaDevice`); None and a reason where it can not."""

    name: str
    why_not_registered: str

    def attach(self) -> None: ...
    def register(self, array: np.ndarray) -> int | None: ...
    def unregister(self, array: np.ndarray) -> None: ...


class LockedCopies:
    """An arena's copies as one card sees them; `n_bytes` of them are locked, `n_refused` could not be."""

    def __init__(self, arena, card: Registrar) -> None:
        self._arena, self._card = arena, card
        self._arrays: dict[tuple[int, str], np.ndarray] = {}
        self._addresses: dict[tuple[int, str], int] = {}
        self.n_bytes = self.n_refused = 0
        card.attach()
        for place, copies in arena.lockable().items():
            if copies.size:
                self._register(place, copies)

    def _register(self, place: tuple[int, str], copies: np.ndarray) -> None:
        address = self._card.register(copies)
        if address is None:
            self.n_refused += copies.size
            return
        self._arrays[place], self._addresses[place] = copies, address
        self.n_bytes += copies.size

    @property
    def note(self) -> str:
        """What to tell the user, empty where everything that lies in RAM was locked."""
        if not self.n_refused:
            return ""
        card, left_out = self._card, f"{self.n_refused / MIB:.1f} MiB"
        return f"experts in RAM: {card.name} could not lock {left_out} of them ({card.why_not_registered}); it fetches none of those, the CPU pool computes them"

    def addresses(self, layer: int, expert: int) -> tuple[int, ...]:
        """Return where a card reads an expert's gate, up and down; all NOWHERE where it can not."""
        bank, number = self._arena.source(layer, expert)
        if bank != COPIES:
            return (NOWHERE,) * len(PARTS)
        found = tuple(self._address((layer, part), number) for part in PARTS)
        return found if all(found) else (NOWHERE,) * len(PARTS)

    def _address(self, place: tuple[int, str], number: int) -> int:
        copies = self._arrays.get(place)
        if copies is None or number >= len(copies):
            return NOWHERE
        size = copies.shape[1]
        address = self._addresses[place] + number * size
        return NOWHERE if address % UNIT or size % UNIT else address

    def fill(self, sources: np.ndarray, layers: Iterable[int]) -> None:
        """Set the rows of layers in sources int64 [layers, experts, 3]."""
        for layer in layers:
            for expert in range(sources.shape[1]):
                sources[layer, expert] = self.addresses(layer, expert)

    def close(self) -> None:
        """Let the driver unlock what this card had locked; no card may be reading."""
        arrays, self._arrays = self._arrays, {}
        self._card.attach()
        for copies in arrays.values():
            self._card.unregister(copies)
