"""A stage on a card against the same stage on the host, point by point, both observed.

Used on a card (tests/gpu) and in the simulator (tests/sim).  Does not know: which windows are run.
"""

import numpy as np

from strata.host.device import HostDevice
from strata.host.executor import HostExecutor
from strata.host.placed import place_stage
from strata.model.model import Model
from strata.numerics.hashing import line_hashes
from strata.numerics.rounding import MODES
from strata.rows import Place, Window
from strata.windows.stage_pass import run_stage

HOST_ONLY = frozenset({"gdn.memory.after", "qsa.keys", "indexer.raw.read"})
"""Points that no card shows."""
DENSE_ONLY = frozenset({"indexer.pooled.read", "indexer.scores", "indexer.cells"})
"""Points that a card has only where rows cannot take all their cells."""


class Every:
    """Contains every point's name."""

    def __contains__(self, point: str) -> bool:
        return True


class Seen:
    """The hashes of all records that an executor shows, by (point, layer, row, part); `change` may write the values first."""

    def __init__(self, executor, change=None) -> None:
        self.records: dict[tuple, tuple] = {}
        self.change = change
        executor.observe, executor.watched = self._see, Every()

    def _see(self, window: Window, point: str, layer: int, values: np.ndarray, place: Place) -> None:
        if place.hashed:
            return
        if self.change is not None:
            self.change(point, layer, values)
        lines = np.arange(values.shape[0], dtype=np.int32) if place.lines is None else place.lines
        hashes = line_hashes(values, lines, place.lengths)
        rows = np.arange(len(hashes)) if place.rows is None else place.rows
        parts = np.full(len(hashes), -1) if place.parts is None else place.parts
        for row, part, pair in zip(rows, parts, hashes, strict=True):
            self.records[point, layer, int(row), int(part)] = tuple(pair.tolist())


class ObservedPair:
    """A whole model on the host and on a card."""

    def __init__(self, card, model: Model, kv: str, n_slots: int, context: int) -> None:
        from strata.cuda.memory import placed as on_card
        from strata.cuda.stage.executor import CudaExecutor

        c, mode = model.config, MODES["canonical"]
        self._device = HostDevice("host[0]", None, 1)
        self.host = HostExecutor(self._device, c, place_stage(model.weights, c, 0, c.n_layers), mode, kv, n_slots, context)
        self.card = CudaExecutor(card, c, on_card.place_stage(card, model.weights, c, 0, c.n_layers), mode, kv, n_slots, context)

    def __enter__(self) -> "ObservedPair":
        return self

    def __exit__(self, *_: object) -> None:
        self.card.close()
        self._device.close()

    def run(self, window: Window, kept=None, change=None) -> set[str]:
        """Run a window on both, commit it where it is not kept, compare all that both show; return the points compared."""
        seen = [Seen(executor, change) for executor in (self.host, self.card)]
        logits = [run_stage(executor, window, None) for executor in (self.host, self.card)]
        if kept is not None:
            for executor in (self.host, self.card):
                executor.commit(window, np.array(kept, np.int32))
        host, card = (one.records for one in seen)
        assert not card.keys() - host.keys(), f"only the card shows {sorted(card.keys() - host.keys())[:4]}"
        assert {key[0] for key in host.keys() - card.keys()} <= HOST_ONLY | DENSE_ONLY
        differing = [key for key in card if card[key] != host[key]]
        assert not differing, f"{len(differing)} records differ, first {differing[:4]}"
        assert np.array_equal(logits[0].view(np.int32), logits[1].view(np.int32))
        return {key[0] for key in card}
