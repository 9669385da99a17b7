"""The tables of a tier on a card, for the layers of one stage: sent again where the host's have changed.

The host's are of the whole model: slot_of int32 [layers, E], sources int64 [layers, E, 3], share; the stage's part of them lies on
the card as `Tables`.  An expert with an address that a 16-byte load cannot take counts as one that cannot be fetched.
Does not know: why a table changes.
"""

from collections.abc import Sequence

import numpy as np

from strata.cuda.card.device import CudaDevice
from strata.cuda.tier.dispatching import Tables
from strata.cuda.tier.expert_cache import PIECE

NEVER = -1


class TierTables:
    """Tables of consecutive layers, sent over the device's stream from page-locked copies; `card` are those on the card."""

    def __init__(self, device: CudaDevice, purpose: str, layers: Sequence[int], n_experts: int) -> None:
        n = len(layers) * n_experts
        self.device, self._layers = device, slice(layers[0], layers[-1] + 1)
        sizes = {"slot_of": (n, np.int32), "sources": (3 * n, np.int64), "share": (1, np.int32)}
        self.card = Tables(*(device.zeros(purpose, *of) for of in sizes.values()))
        self._staged = {name: device.pinned(*of) for name, of in sizes.items()}
        self._sent = dict.fromkeys(sizes, NEVER)

    def refresh(self, tier) -> None:
        """Send what differs from what was sent last; no window may be running."""
        self._send("slot_of", int(tier.residency.version[0]), lambda: tier.residency.slot_of[self._layers])
        self._send("sources", tier.sources_version, lambda: _loadable(tier.sources[self._layers]))
        self._send("share", tier.share, lambda: tier.share)

    def _send(self, name: str, version: int, values) -> None:
        if self._sent[name] == version:
            return
        staged = self._staged[name]
        staged[:] = np.reshape(values(), -1)
        getattr(self.card, name).copy_to_device(staged, stream=self.device.stream)
        self._sent[name] = version


def _loadable(sources: np.ndarray) -> np.ndarray:
    """Return sources with zeros for the experts that have an address which is 0 or no multiple of a load's bytes."""
    return np.where(((sources != 0) & (sources % PIECE == 0)).all(axis=2, keepdims=True), sources, 0)
