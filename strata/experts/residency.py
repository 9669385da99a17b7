"""Which experts lie in a device's cache, and in which slot: the residency table.

Flat int32 arrays, so that the table can lie in a card's memory as it is: `slot_of` [layers, experts] holds a slot or
`ABSENT`; `held` [slots, 2] is the same the other way round, (layer, expert) or (`ABSENT`, `ABSENT`); `version` [1] counts
changes.  A slot that was vacated is nobody's until it is filled again: neither held nor offered.  One thread changes a
table, between windows.  Does not know: bytes, devices, why an expert moves.
"""

import numpy as np

ABSENT = -1


class Residency:
    """The table of one device with `n_slots` slots, over all layers of the model."""

    def __init__(self, n_layers: int, n_experts: int, n_slots: int) -> None:
        self.slot_of = np.full((n_layers, n_experts), ABSENT, np.int32)
        self.held = np.full((n_slots, 2), ABSENT, np.int32)
        self.version = np.zeros(1, np.int32)
        self._reserved = np.zeros(n_slots, np.bool_)

    @property
    def n_slots(self) -> int:
        return len(self.held)

    @property
    def n_held(self) -> int:
        """Slots with an expert that can be used."""
        return int((self.held[:, 0] != ABSENT).sum())

    def free_slots(self) -> np.ndarray:
        """Return the slots without an expert that nobody has reserved, ascending."""
        return np.flatnonzero((self.held[:, 0] == ABSENT) & ~self._reserved)

    def reserve(self, slot: int) -> int:
        """Keep a free slot for an expert that is on its way."""
        self._reserved[slot] = True
        return slot

    def lend(self, slot: int) -> tuple[int, int]:
        """Make what a slot holds absent and keep the slot; return its (layer, expert), twice `ABSENT` for a free one."""
        if self._reserved[slot]:
            raise ValueError(f"slot {slot} is kept for an expert that is on its way")
        layer, expert = self.held[slot].tolist()
        if layer == ABSENT:
            self.reserve(slot)
        else:
            self.vacate(layer, expert)
        return layer, expert

    def release(self, slot: int) -> None:
        """Give up a slot that was reserved or lent and holds nothing: it is free again."""
        self._reserved[slot] = False

    def vacate(self, layer: int, expert: int) -> int:
        """Make a held expert absent at once and return its slot, reserved for the one that takes its place."""
        slot = int(self.slot_of[layer, expert])
        if slot == ABSENT:
            raise ValueError(f"expert {expert} of layer {layer} lies in no slot")
        self.slot_of[layer, expert] = ABSENT
        self.held[slot] = ABSENT
        self.version += 1
        return self.reserve(slot)

    def settle(self, layer: int, expert: int, slot: int) -> None:
        """Make an expert whose bytes lie in a slot resident; the slot must hold nothing."""
        if self.held[slot, 0] != ABSENT or self.slot_of[layer, expert] != ABSENT:
            raise ValueError(f"slot {slot} is held, or expert {expert} of layer {layer} is resident already")
        self.slot_of[layer, expert] = slot
        self.held[slot] = layer, expert
        self._reserved[slot] = False
        self.version += 1
