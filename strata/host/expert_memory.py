"""A host device's memory for experts: the slots of its cache and the places of its staging ring.

One buffer each, taken from the device's budget: slot s holds the packed bytes of one expert, its gate, up and down matrices
one after the other, from byte s * `slot_bytes` on; a slot is as large as the largest expert of the device's layers.  The
ring's places are filled for one layer of one window and free again with the next.  Copies may be made on another thread, as
long as nobody computes with the slot meanwhile.  Does not know: which expert belongs where.
"""

from collections.abc import Callable, Mapping

import numpy as np

from strata.cpu_pool.arena import PARTS
from strata.host.device import HostDevice
from strata.host.matrix import Matrix
from strata.host.placed import PlacedMoe

LINE_BYTES = 64
CACHE, RING = "expert cache", "expert staging ring"

BlobOf = Callable[[int, str, int], np.ndarray]
"""(layer, part, expert) -> the packed bytes, uint8."""


def blob_bytes(placed: PlacedMoe) -> int:
    """Return the bytes of one expert of a layer."""
    return sum(getattr(placed, part).expert_bytes for part in PARTS)


def slot_bytes(layers: Mapping[int, PlacedMoe]) -> int:
    """Return the bytes of a slot that holds any expert of the layers: whole cache lines."""
    return -(-max(blob_bytes(placed) for placed in layers.values()) // LINE_BYTES) * LINE_BYTES


class ExpertMemory:
    """The cache and ring of one device; `blob_of` gives an expert's bytes in RAM, and may be replaced between windows."""

    def __init__(self, device: HostDevice, layers: Mapping[int, PlacedMoe], n_slots: int, n_places: int, blob_of: BlobOf) -> None:
        self.blob_of, self._layers, self.slot_bytes, self.n_places = blob_of, layers, slot_bytes(layers), n_places
        device.take(CACHE, n_slots * self.slot_bytes)
        device.take(RING, n_places * self.slot_bytes)
        self.cache = np.zeros(n_slots * self.slot_bytes, np.uint8)
        self.ring = np.zeros(n_places * self.slot_bytes, np.uint8)
        self._cached = {layer: self._matrices(placed, self.cache) for layer, placed in layers.items()}
        self._staged = {layer: self._matrices(placed, self.ring) for layer, placed in layers.items()}

    def load(self, layer: int, expert: int, slot: int) -> None:
        """Copy an expert's bytes into a slot of the cache."""
        self._copy(layer, expert, self.cache, slot)

    def saved(self, layer: int, slot: int) -> dict[str, np.ndarray]:
        """Return copies of the blobs that a slot holds, by part, for an expert of a layer."""
        found, at = {}, slot * self.slot_bytes
        for part in PARTS:
            size = getattr(self._layers[layer], part).expert_bytes
            found[part] = self.cache[at : at + size].copy()
            at += size
        return found

    def stage(self, layer: int, experts: np.ndarray) -> None:
        """Copy experts' bytes into the ring, the i-th into place i."""
        for place, expert in enumerate(experts):
            self._copy(layer, int(expert), self.ring, place)

    def lendable(self, first_slot: int) -> np.ndarray:
        """Return the memory of the cache from a slot on, uint8."""
        return self.cache[first_slot * self.slot_bytes :]

    def cached(self, layer: int) -> tuple[Matrix, Matrix, Matrix]:
        """Return a layer's gate, up and down over the cache's slots."""
        return self._cached[layer]

    def staged(self, layer: int) -> tuple[Matrix, Matrix, Matrix]:
        """Return a layer's gate, up and down over the ring's places."""
        return self._staged[layer]

    def _copy(self, layer: int, expert: int, buffer: np.ndarray, slot: int) -> None:
        at = slot * self.slot_bytes
        for part in PARTS:
            blob = self.blob_of(layer, part, expert)
            buffer[at : at + blob.size] = blob
            at += blob.size

    def _matrices(self, placed: PlacedMoe, buffer: np.ndarray) -> tuple[Matrix, Matrix, Matrix]:
        found, at = [], 0
        for part in PARTS:
            matrix = getattr(placed, part)
            found.append(matrix.over(buffer[at:], self.slot_bytes))
            at += matrix.expert_bytes
        return found[0], found[1], found[2]
