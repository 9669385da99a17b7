"""Probes and sources that disturb: logits of one request written over, drafts of the draft layer written over."""

from collections.abc import Callable

import numpy as np

from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings
from strata.rows import Place, Window
from strata.split.probes import SilentProbe


class WriteLogits(SilentProbe):
    """Writes over the logits of one request's row at one position, before anybody reads them."""

    points = frozenset({"logits"})

    def __init__(self, request: int, position: int, write: Callable[[np.ndarray], None]) -> None:
        self.request, self.position, self.write = request, position, write

    def see(self, stage: int, window: Window, point: str, layer: int, values: np.ndarray, place: Place) -> None:
        """Find the row among the window's logit rows and write."""
        for line, row in enumerate(window.logit_rows):
            segment = window.segments[window.segment_of_row[row]]
            if segment.request == self.request and window.positions[row] == self.position:
                self.write(values[line])


def run_corrupted(model, requests, corrupt: Callable[[np.ndarray], None], **settings):
    """Return the batch of an engine whose draft layer's logits are written over before its picks."""
    with Engine(model, EngineSettings(**{"context": 512, "threads": 1, **settings})) as engine:
        engine.draft_layer.observe = lambda window, point, layer, values, place: corrupt(values)
        engine.draft_layer.watched = frozenset({"draft.logits"})
        return engine.generate(requests)
