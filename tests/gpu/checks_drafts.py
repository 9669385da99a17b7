"""The whole draft layer on a card against the host's: cells, tokens, probabilities and logits, step by step.

Used on a card (tests/gpu) and in the simulator (tests/sim).  Does not know: where residual rows come from.
"""

from collections.abc import Sequence

import numpy as np

from strata.cuda.drafting import placed_drafts as drafts_on_card
from strata.cuda.drafting.draft_layer import CudaDrafts
from strata.cuda.memory import placed as on_card
from strata.host.device import HostDevice
from strata.host.drafts import HostDrafts
from strata.host.placed import place_stage
from strata.host.placed_drafts import place_drafts
from strata.model.model import Model
from strata.numerics.rotary import rotary_table
from strata.numerics.rounding import MODES
from strata.rows import KeptRows, Segment, Window
from tests.gpu.checks_attention import folded_halves
from tests.gpu.support import assert_same_bits


class Pair:
    """A host's and a card's draft layer on one model; every step is taken by both and compared."""

    def __init__(self, card, model: Model, kv: str, n_slots: int, context: int, n_threads: int = 1) -> None:
        c = self.config = model.config
        self.n_slots, self.kv = n_slots, kv
        self._generator = np.random.default_rng(n_slots + context)
        self._device, self.card = HostDevice("host[0]", None, n_threads), card
        stage = place_stage(model.weights, c, c.n_layers - 1, c.n_layers)
        self.host = HostDrafts(self._device, c, place_drafts(model.weights, c, stage), MODES["canonical"], kv, n_slots, context)
        placed = on_card.place_stage(card, model.weights, c, c.n_layers - 1, c.n_layers)
        table = card.upload("table", rotary_table(c.rope_base, c.rope_dims, context).reshape(-1))
        self.drafts = CudaDrafts(card, c, drafts_on_card.place_drafts(card, model.weights, c, placed), kv, n_slots, context, table)

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_: object) -> None:
        self.drafts.close()
        self._device.close()

    def hold(self, *segments: tuple[int, int, int], keep: bool = False) -> Window:
        """Hold a window of (slot, start, count) segments with random rows and tokens; return it."""
        c = self.config
        tokens = [self._tokens(count) for _, _, count in segments]
        window = Window.of([Segment(slot, start, t) for (slot, start, _), t in zip(segments, tokens, strict=True)], keep, True)
        residual = self._generator.standard_normal((window.n_rows, c.n_streams, c.hidden)).astype(np.float32)
        self.host.hold(window, residual)
        self.drafts.hold(window, self.card.upload("residual", residual.reshape(-1)))
        return window

    def build(self, *kept: tuple[Window, Sequence[int]]) -> None:
        """Make the cells of windows' first rows, and compare all cells."""
        parts = [KeptRows(window, np.array(counts, np.int32), tuple(self._tokens(n) for n in counts)) for window, counts in kept]
        self.host.build(parts)
        self.drafts.build(parts)
        self.compare_cells()

    def read(self, slot: int, start: int, count: int) -> None:
        """Hold a window of one segment and make all its cells."""
        self.build((self.hold((slot, start, count), keep=True), [count]))

    def chain(self, slots: Sequence[int], depth: int) -> list[int]:
        """Propose for slots from their newest cells and `depth - 1` tokens further; return the last tokens."""
        tokens = None
        for step in range(depth):
            what = f"step {step} of slots {list(slots)}, {self.kv}"
            wanted, got = self.host.propose(slots, tokens), self.drafts.propose(slots, tokens)
            assert_same_bits(f"logits, {what}", got.logits, wanted.logits)
            assert np.array_equal(got.tokens, wanted.tokens), what
            assert_same_bits(f"probabilities, {what}", got.probabilities, wanted.probabilities)
            tokens = [int(token) for token in wanted.tokens]
        self.compare_cells()
        return tokens

    def compare_cells(self) -> None:
        """Fail unless every slot has the host's cells, chain cells too."""
        host, cells = self.host.cells, self.drafts.cells
        places = cells.places.copy_to_host().reshape(self.n_slots, -1)
        for slot in range(self.n_slots):
            n = int(host.counts[slot] + self.host._chained[slot])
            assert n == self.drafts._counts[slot] + self.drafts._chained[slot], f"cells of slot {slot}"
            at = host.positions[slot, :n]
            assert np.array_equal(places[slot, :n], at), f"places of slot {slot}"
            for name in ("k_codes", "k_scales", "v_codes", "v_scales"):
                wanted = getattr(host, name)
                if wanted.size:
                    got = getattr(cells.attention, name).copy_to_host().reshape(wanted.shape)
                    assert np.array_equal(_bits(got[slot, at]), _bits(wanted[slot, at])), f"{name} of slot {slot}, {self.kv}"

    def _tokens(self, n: int) -> tuple[int, ...]:
        return tuple(int(t) for t in self._generator.integers(0, self.config.vocabulary, n))


def _bits(codes: np.ndarray) -> np.ndarray:
    return codes.view(np.int32) if codes.dtype == np.float32 else folded_halves(codes)
