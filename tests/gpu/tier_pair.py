"""A stage of a model whose experts do not all lie on the card, and the same without a tier: windows have the same bits.

The CPU pool's part is computed by the host's own operations.  Used on a card (tests/gpu) and in the simulator (tests/sim).
Does not know: which windows are run.
"""

from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

from strata.experts.residency import Residency
from strata.host.experts import activate
from strata.host.matrix import Activations, Entries
from strata.host.placed import place_stage
from strata.model.model import Model
from strata.numerics.rounding import MODES
from strata.rows import Window
from strata.windows.stage_pass import run_stage
from tests.gpu.checks_taps import DENSE_ONLY, HOST_ONLY, ObservedPair, Seen

PARTS = ("gate", "up", "down")
NOT_WITH_A_TIER = frozenset({"moe.hidden", "moe.hidden.codes", "moe.hidden.scales"})
"""Points that a card whose experts are elsewhere does not have."""


class HostJobs:
    """Computes jobs with the host's operations; `fail_at` counts down the calls until one raises."""

    def __init__(self, layers, control: np.ndarray) -> None:
        self.layers, self.control, self.calls, self.fail_at = layers, control, Counter(), 0

    def compute(self, layer: int, experts, starts, rows, values, out, is_prompt: bool) -> None:
        """Write outputs float32 [entries, H]."""
        self.calls[layer, is_prompt] += 1
        if self.fail_at:
            self.fail_at -= 1
            if not self.fail_at:
                raise ArithmeticError("a job that fails")
        moe, entries = self.layers[layer].moe, Entries(experts.copy(), starts.copy(), rows.copy())
        x = Activations(values.copy(), self.control, np.full(len(values), 32, np.int32))
        gate, up = (bank.times(x, True, self.control, entries) for bank in (moe.gate, moe.up))
        activate(gate, up)
        hidden = Activations(gate, self.control, np.full(len(gate), 32, np.int32))
        lines = Entries(entries.experts, entries.starts, np.arange(len(rows), dtype=np.int32))
        out[:] = moe.down.times(hidden, True, self.control, lines)


class PinnedExperts:
    """Copies of all experts that kernels may read, and the table of their addresses."""

    def __init__(self, card, model: Model, layers) -> None:
        c = model.config
        self.card, self.banks = card, {}
        self.sources = np.zeros((c.n_layers, c.n_experts, 3), np.int64)
        for index, placed in layers.items():
            for number, part in enumerate(PARTS):
                bank = getattr(placed.moe, part)
                whole = np.zeros(c.n_experts * bank.expert_bytes + 64, np.uint8)
                copy = whole[-whole.ctypes.data % 64 :][: c.n_experts * bank.expert_bytes]
                copy[:] = bank.raw.reshape(-1)[: copy.size]
                self.banks[index, part] = whole
                address = card.register(whole)
                assert address is not None, card.why_not_registered
                self.sources[index, :, number] = address + (copy.ctypes.data - whole.ctypes.data) + bank.expert_bytes * np.arange(c.n_experts)

    def close(self) -> None:
        """Unlock them."""
        for whole in self.banks.values():
            self.card.unregister(whole)


class CardTier:
    """The least tier that an executor takes; slots hold a fixed random choice of experts."""

    def __init__(self, card, model: Model, control: np.ndarray, n_slots: int, share: int = 0, n_places: int = 0) -> None:
        from strata.cuda.tier.expert_cache import CardExpertMemory

        c = model.config
        self.layers = {layer.index: layer for layer in place_stage(model.weights, c, 0, c.n_layers).layers}
        self.memory = CardExpertMemory(card, {index: layer.moe for index, layer in self.layers.items()}, n_slots, n_places, self.blob)
        self.residency, self.share, self.jobs = Residency(c.n_layers, c.n_experts, n_slots), share, HostJobs(self.layers, control)
        self.pinned = PinnedExperts(card, model, self.layers if n_places else {})
        self.sources, self.sources_version, self.served = self.pinned.sources, 0, np.zeros((2, 3), np.int64)
        self.reach, self.pool, self.prompt_pool = (nullcontext() for _ in range(3))
        self.fill(np.random.default_rng(7).permutation(c.n_layers * c.n_experts)[:n_slots], c.n_experts)

    def fill(self, pairs, n_experts: int) -> None:
        """Load experts, numbered over all layers, into the free slots."""
        for slot, pair in zip(self.residency.free_slots().tolist(), pairs.tolist(), strict=True):
            layer, expert = divmod(pair, n_experts)
            self.memory.load(layer, expert, slot)
            self.residency.settle(layer, expert, slot)

    def blob(self, layer: int, part: str, expert: int) -> np.ndarray:
        """Return an expert's packed bytes."""
        return getattr(self.layers[layer].moe, part).blob(expert)


class TierPair(ObservedPair):
    """A whole model on the host, and on a card with a tier of n_slots slots, or with `tier` of one's own."""

    def __init__(self, card, model: Model, control: np.ndarray, n_slots: int, context: int, share: int = 0, n_places: int = 0, batch: int = 2, tier=None) -> None:
        from strata.cuda.memory import placed as on_card
        from strata.cuda.stage.executor import CudaExecutor
        from strata.host.device import HostDevice
        from strata.host.executor import HostExecutor

        c, mode = model.config, MODES["canonical"]
        self._device = HostDevice("host[0]", None, 1)
        self.host = HostExecutor(self._device, c, place_stage(model.weights, c, 0, c.n_layers), mode, "f16", batch, context)
        placed = on_card.place_stage(card, model.weights, c, 0, c.n_layers, routed=False)
        self.card = CudaExecutor(card, c, placed, mode, "f16", batch, context)
        self.tier = tier or CardTier(card, model, control, n_slots, share, n_places)
        self.card.tier = self.tier
        self.counts = [np.zeros((2, c.n_layers, c.n_experts), np.int32) for _ in range(2)]
        self.host.routed, self.card.routed = self.counts

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.tier.pinned.close()
        for purpose in [name for name in self.card.device.taken if name.startswith(("weights", "expert"))]:
            self.card.device.give_back(purpose)

    def plain(self, window: Window, kept=None) -> None:
        """Run a window on both, unobserved: logits and the counts of routing agree."""
        for executor in (self.host, self.card):
            executor.observe, executor.watched = None, frozenset()
        logits = [run_stage(executor, window, None) for executor in (self.host, self.card)]
        if kept is not None:
            for executor in (self.host, self.card):
                executor.commit(window, np.array(kept, np.int32))
        assert np.array_equal(logits[0].view(np.int32), logits[1].view(np.int32)), f"{window.n_rows} rows: logits differ"
        assert np.array_equal(*self.counts), "counts of routing differ"

    def run(self, window: Window, kept=None, change=None) -> set[str]:
        """Run a window on both, observed, and compare all that both show; return the points compared."""
        seen = [Seen(executor, change) for executor in (self.host, self.card)]
        logits = [run_stage(executor, window, None) for executor in (self.host, self.card)]
        if kept is not None:
            for executor in (self.host, self.card):
                executor.commit(window, np.array(kept, np.int32))
        host, card = (one.records for one in seen)
        assert {key[0] for key in host.keys() - card.keys()} <= HOST_ONLY | DENSE_ONLY | NOT_WITH_A_TIER
        differing = [key for key in card if card[key] != host[key]]
        assert not differing, f"{len(differing)} records differ, first {differing[:4]}"
        assert np.array_equal(logits[0].view(np.int32), logits[1].view(np.int32))
        return {key[0] for key in card}


def wanted_services(model: Model, tier, ids_by_layer) -> SimpleNamespace:
    """Return what the host's dispatch says of chosen ids, summed over layers: entries by cache, PCIe and pool."""
    from strata.experts.dispatch import dispatch

    total = np.zeros(3, np.int64)
    for layer, ids in ids_by_layer.items():
        plan = dispatch(ids, tier.residency.slot_of[layer], tier.sources[layer, :, 0] != 0, tier.share, tier.memory.n_places)
        total += plan.entries_by_place()
    return SimpleNamespace(entries=total)
