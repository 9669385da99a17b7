"""The draft layer and a trunk on one host device, driven by hand."""

from collections.abc import Sequence

import numpy as np

from strata.host.device import HostDevice
from strata.host.drafts import HostDrafts
from strata.host.executor import HostExecutor
from strata.host.placed import place_stage
from strata.host.placed_drafts import place_drafts
from strata.numerics.rounding import mode_named
from strata.rows import KeptRows, Segment, Window
from strata.windows.stage_pass import run_stage


class Bench:
    """A trunk and its draft layer with `n_slots` sessions; `read` runs text through both."""

    def __init__(self, model, rounding: str = "canonical", n_slots: int = 1, context: int = 256, n_threads: int = 1) -> None:
        mode = mode_named(rounding)
        self.device = HostDevice("host[0]", None, n_threads)
        placed = place_stage(model.weights, model.config, 0, model.config.n_layers)
        self.placed = place_drafts(model.weights, model.config, placed)
        shape = (mode, mode.kv_default, n_slots, context)
        self.trunk = HostExecutor(self.device, model.config, placed, *shape)
        self.drafts = HostDrafts(self.device, model.config, self.placed, *shape)

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.device.close()

    def read(self, slot: int, text: Sequence[int], start: int, stop: int) -> None:
        """Run positions start .. stop-1 through the trunk and make their cells; text[stop] is known."""
        window = Window.of([Segment(slot, start, tuple(text[start:stop]), 1)], keep=True, for_drafts=True)
        run_stage(self.trunk, window, None, self.drafts)
        self.drafts.build([KeptRows(window, np.array([stop - start], np.int32), (tuple(text[start + 1 : stop + 1]),))])

    def chain(self, slot: int, count: int) -> tuple[list[int], list[float]]:
        """Return `count` chained drafts of a slot and their probabilities."""
        tokens, probabilities = [], []
        for _ in range(count):
            made = self.drafts.propose([slot], tokens[-1:] or None)
            tokens.append(int(made.tokens[0]))
            probabilities.append(float(made.probabilities[0]))
        return tokens, probabilities

    def cell_bits(self, slot: int, count: int) -> list[bytes]:
        """Return the bits of a slot's first cells, keys and values."""
        cells = self.drafts.cells
        return [array[slot, :count].tobytes() for array in (cells.k_codes, cells.k_scales, cells.v_codes, cells.v_scales)]
