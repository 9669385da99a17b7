"""A card's memory for experts: the slots of its cache and, behind them, the places of its staging ring.

One array: slot s holds the packed bytes of one expert, its gate, up and down matrices one after the other, from byte
s * `slot_bytes` on, as on the host (`strata/host/expert_memory.py`); ring place r lies where slot n_slots + r would.  A slot is as
large as the largest expert of the layers.  Slots are filled over a stream of their own, from any thread, while kernels read
others.  Does not know: which expert belongs where.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.machine.seam import SIMULATED
from strata.cuda.machine.shapes import require
from strata.cuda.packed.products import Packed

PARTS = ("gate", "up", "down")
LINE_BYTES = 64
PIECE = 16
"""Bytes of the widest load: a matrix begins at a multiple of it."""
CACHE, RING = "expert cache", "expert staging ring"

BlobOf = Callable[[int, str, int], np.ndarray]
"""(layer, part, expert) -> the packed bytes, uint8."""


class Bank(Protocol):
    """The shape of a layer's experts of one part."""

    type_id: int
    n_out: int
    n_in: int
    expert_bytes: int


class ExpertShapes(Protocol):
    """The shapes of a layer's experts."""

    gate: Bank
    up: Bank
    down: Bank


def slot_bytes(layers: Mapping[int, ExpertShapes]) -> int:
    """Return the bytes of a slot that holds any expert of the layers: whole cache lines."""
    largest = max(sum(getattr(shapes, part).expert_bytes for part in PARTS) for shapes in layers.values())
    return -(-largest // LINE_BYTES) * LINE_BYTES


class CardExpertMemory:
    """The cache and ring of one card; `blob_of` gives an expert's bytes in RAM, and may be replaced between windows."""

    def __init__(self, device: CudaDevice, layers: Mapping[int, ExpertShapes], n_slots: int, n_places: int, blob_of: BlobOf) -> None:
        for layer, shapes in layers.items():
            for part in PARTS:
                size = getattr(shapes, part).expert_bytes
                require(size % PIECE == 0, f"{part} of layer {layer}: {size} bytes an expert", f"a card's slots hold multiples of {PIECE}", "use a host device")
        device.attach()
        self.device, self.blob_of, self.layers = device, blob_of, layers
        self.slot_bytes, self.n_slots, self.n_places = slot_bytes(layers), n_slots, n_places
        self.buffer = device.empty(CACHE, (n_slots + n_places) * self.slot_bytes, np.uint8)
        if n_places:
            device.move(CACHE, RING, n_places * self.slot_bytes)
        self._stream = 0 if SIMULATED or device.is_blueprint else cuda.stream()
        self._matrices = {layer: self._over(shapes) for layer, shapes in layers.items()}

    def load(self, layer: int, expert: int, slot: int) -> None:
        """Copy an expert's bytes into a slot of the cache, which must be nobody's; returns when they are there."""
        self.device.attach()
        self._copy(layer, expert, slot)
        self._wait()

    def stage(self, layer: int, experts: np.ndarray) -> None:
        """Copy experts' bytes into the ring, the i-th into place i; no window may be running."""
        self.device.attach()
        for place, expert in enumerate(experts):
            self._copy(layer, int(expert), self.n_slots + place)
        self._wait()

    def saved(self, layer: int, slot: int) -> dict[str, np.ndarray]:
        """Return copies of the blobs that a slot holds, by part, for an expert of a layer."""
        self.device.attach()
        found, at = {}, slot * self.slot_bytes
        for part in PARTS:
            found[part] = np.empty(getattr(self.layers[layer], part).expert_bytes, np.uint8)
            self.buffer[at : at + found[part].size].copy_to_host(found[part], stream=self._stream)
            at += found[part].size
        self._wait()
        return found

    def matrices(self, layer: int) -> tuple[Packed, Packed, Packed]:
        """Return a layer's gate, up and down over the cache's slots and the ring's places."""
        return self._matrices[layer]

    def lendable(self, first_slot: int):
        """Return the memory of the cache from a slot on, uint8."""
        return self.buffer[first_slot * self.slot_bytes : self.n_slots * self.slot_bytes]

    def _copy(self, layer: int, expert: int, slot: int) -> None:
        at = slot * self.slot_bytes
        for part in PARTS:
            blob = self.blob_of(layer, part, expert)
            self.buffer[at : at + blob.size].copy_to_device(blob, stream=self._stream)
            at += blob.size

    def _wait(self) -> None:
        if self._stream:
            self._stream.synchronize()

    def _over(self, shapes: ExpertShapes) -> tuple[Packed, Packed, Packed]:
        found, at = [], 0
        for part in PARTS:
            bank = getattr(shapes, part)
            found.append(Packed(self.buffer[at:], bank.type_id, bank.n_out, bank.n_in, self.slot_bytes))
            at += bank.expert_bytes
        return found[0], found[1], found[2]
