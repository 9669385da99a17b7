"""Experts blocks of two layers of a stage with a tier: router, dispatch, fetch, products, meeting, combination.

Outputs must be those of the host, who served what must be what the host's dispatch says.  The pool's part is computed by the host's
kernels.  Used on a card (tests/gpu) and in the simulator (tests/sim).  Does not know: attention, streams.
"""

from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

from strata.experts.dispatch import dispatch
from strata.experts.residency import Residency
from strata.host import experts as host
from strata.model.config import ModelConfig
from strata.rows import Segment, Window
from tests.gpu.checks_experts import _bank, _float_matrix
from tests.gpu.geometry import flat
from tests.gpu.support import (
    GuardedOutput, assert_same_bits, coded_on_host, floats_on_host, packed_weights, product_on_host, random_float_weights, random_rows, turned,
)

LAYERS = (4, 5)
PARTS = ("gate", "up", "down")


class BlockJobs:
    """Computes jobs with the host's kernels; `fail_at` counts down the calls until one raises."""

    def __init__(self, control: np.ndarray, c: ModelConfig, forms, raws) -> None:
        self.control, self.c, self.forms, self.raws = control, c, forms, raws
        self.calls, self.fail_at = Counter(), 0

    def outputs(self, values, experts, starts, rows) -> np.ndarray:
        """Return float32 [entries, H] of listed experts."""
        x, c = coded_on_host(self.control, np.array(values)), self.c
        gate, up = (product_on_host(self.control, self.forms[part], self.raws[part], c.expert_ff, x, experts, starts, rows) for part in ("gate", "up"))
        host.activate(gate, up)
        inner = coded_on_host(self.control, gate)
        return product_on_host(self.control, self.forms["down"], self.raws["down"], c.hidden, inner, experts, starts, np.arange(len(rows)))

    def compute(self, layer: int, experts, starts, rows, values, out, is_prompt: bool) -> None:
        """Write outputs of jobs."""
        self.calls[layer, is_prompt] += 1
        self.fail_at -= 1
        if self.fail_at == 0:
            raise ArithmeticError("a job that fails")
        out[:] = self.outputs(values, experts, starts, rows)


class TierBlock:
    """The blocks' weights, and a tier of n_slots slots with a fixed random choice of experts of both layers."""

    def __init__(self, card, control, c: ModelConfig, forms, n_slots: int, share: int = 0, n_places: int = 0) -> None:
        from strata.cuda.memory.placed import Part
        from strata.cuda.memory.workspace import Workspace
        from strata.cuda.tier.expert_cache import CardExpertMemory
        from strata.cuda.tier.meeting import Meetings

        self.card, self.control, self.c, self.forms = card, control, c, forms
        shapes = {"gate": (c.expert_ff, c.hidden), "up": (c.expert_ff, c.hidden), "down": (c.hidden, c.expert_ff)}
        self.raws = {part: packed_weights(forms[part], 70 + i, *shapes[part], n_experts=c.n_experts) for i, part in enumerate(PARTS)}
        banks = {
            part: SimpleNamespace(type_id=forms[part].type_id, n_out=n_out, n_in=n_in, expert_bytes=n_out * (n_in // forms[part].block_weights) * forms[part].block_bytes)
            for part, (n_out, n_in) in shapes.items()
        }
        self.sizes = {part: bank.expert_bytes for part, bank in banks.items()}
        memory = CardExpertMemory(card, dict.fromkeys(LAYERS, SimpleNamespace(**banks)), n_slots, n_places, self.blob)
        self.jobs = BlockJobs(control, c, forms, self.raws)
        self.tier = SimpleNamespace(
            memory=memory, residency=Residency(c.n_layers, c.n_experts, n_slots), share=share, sources=np.zeros((c.n_layers, c.n_experts, 3), np.int64),
            sources_version=0, served=np.zeros((2, 3), np.int64), jobs=self.jobs, reach=nullcontext(), pool=nullcontext(), prompt_pool=nullcontext(),
        )
        self.locked = []
        if n_places:
            self._lock()
        pairs = np.random.default_rng(7).permutation(2 * c.n_experts)[:n_slots]
        for slot, pair in enumerate(pairs.tolist()):
            layer, expert = LAYERS[pair % 2], pair // 2
            memory.load(layer, expert, slot)
            self.tier.residency.settle(layer, expert, slot)
        shared = {"shared_gate": (c.shared_ff, c.hidden), "shared_up": (c.shared_ff, c.hidden), "shared_down": (c.hidden, c.shared_ff)}
        self.shared = {name: _bank(card, forms[name], 80 + i, *shape, 1) for i, (name, shape) in enumerate(shared.items())}
        self.floats = {name: random_float_weights(forms[name], 90, n, c.hidden) for name, n in (("router", c.n_experts), ("shared_router", 1))}
        floats = {name: _float_matrix(card, forms[name], values) for name, values in self.floats.items()}
        self.part = Part({name: packed for name, (_, packed) in self.shared.items()} | floats)
        self.work = Workspace(card, "test")
        self.meetings = Meetings(card, c, LAYERS, self.tier, self.work, "test")
        self.routed = np.zeros((2, c.n_layers, c.n_experts), np.int32)

    def blob(self, layer: int, part: str, expert: int) -> np.ndarray:
        return self.raws[part][expert * self.sizes[part] : (expert + 1) * self.sizes[part]]

    def _lock(self) -> None:
        """Page-lock copies of all experts but the last, and note where kernels find them."""
        for number, part in enumerate(PARTS):
            whole = np.zeros(self.raws[part].size + 64, np.uint8)
            at = -whole.ctypes.data % 64
            whole[at : at + self.raws[part].size] = self.raws[part]
            address = self.card.register(whole)
            assert address is not None, self.card.why_not_registered
            self.locked.append(whole)
            self.tier.sources[LAYERS[0] : LAYERS[-1] + 1, :-1, number] = address + at + self.sizes[part] * np.arange(self.c.n_experts - 1)

    def __enter__(self) -> "TierBlock":
        return self

    def __exit__(self, *_: object) -> None:
        """Give back what was taken."""
        for whole in self.locked:
            self.card.unregister(whole)
        self.work.close()
        for purpose in ("expert cache", "expert staging ring"):
            self.card.give_back(purpose)

    def record(self, n_rows: int):
        """Return (activations of both layers, their outputs' buffers, launches)."""
        from strata.cuda.experts.combine import launch_combine
        from strata.cuda.packed.products import Coded
        from strata.cuda.stage.record_moe import MoeRecorder

        c, launches, xs, outs = self.c, [], [], []

        def add(made):
            launches.extend(made if isinstance(made, tuple) else (made,))

        for layer in LAYERS:
            x = random_rows(100 + n_rows + layer, n_rows, c.hidden)
            coded = coded_on_host(self.control, x)
            placed = Coded(*(flat(self.card, a) for a in (coded.codes, turned(coded.codes), coded.scales, coded.sums)), n_rows, c.hidden)
            recorder = MoeRecorder(self.card, c, self.work, n_rows, add, tier=self.meetings.recorder(layer, self.work, n_rows, add))
            combined = recorder.block(self.part, flat(self.card, x), placed, layer)
            outs.append(GuardedOutput(self.card, n_rows * c.hidden))
            add(launch_combine(self.card, c.hidden, combined, n_rows, outs[-1].inside))
            xs.append(x)
        return xs, outs, launches

    def wanted(self, x: np.ndarray, layer: int) -> tuple[np.ndarray, np.ndarray, tuple[int, int, int]]:
        """Return (outputs, chosen ids, entries by cache, PCIe and pool) by the host's operations."""
        c, n, control = self.c, len(x), self.control
        logits, gate = (floats_on_host(control, self.forms[name], values, x) for name, values in self.floats.items())
        ids, weights = np.empty((n, c.n_used), np.int32), np.empty((n, c.n_used), np.float32)
        host.route(logits, ids, weights)
        plan = dispatch(ids, self.tier.residency.slot_of[layer], self.tier.sources[layer, :, 0] != 0, self.tier.share, self.tier.memory.n_places)
        routed = self.jobs.outputs(x, plan.experts, plan.starts, plan.rows)
        coded, rows = coded_on_host(control, x), np.arange(n, dtype=np.int32)
        first, second = (product_on_host(control, self.forms[name], self.shared[name][0], c.shared_ff, coded, [0], [0, n], rows) for name in ("shared_gate", "shared_up"))
        host.activate(first, second)
        shared = product_on_host(control, self.forms["shared_down"], self.shared["shared_down"][0], c.hidden, coded_on_host(control, first), [0], [0, n], rows)
        out = np.empty((n, c.hidden), np.float32)
        host.combine(routed, plan.entry_of, weights, shared, gate, out)
        return out, ids, plan.entries_by_place()

    def window(self, n_rows: int, is_prompt: bool = False) -> Window:
        return Window.of([Segment(0, 0, (0,) * n_rows)], True, is_prompt=is_prompt)

    def check(self, n_rows: int, run, is_prompt: bool = False, turns: int = 2) -> np.ndarray:
        """Run windows through `run(launches, window)`, and compare outputs, counts and who served; return who served a window."""
        xs, outs, launches = self.record(n_rows)
        window = self.window(n_rows, is_prompt)
        wanted = [self.wanted(x, layer) for x, layer in zip(xs, LAYERS, strict=True)]
        by_place = np.sum([one[2] for one in wanted], axis=0)
        for turn in range(turns):
            served, routed = self.tier.served.copy(), self.routed.copy()
            self.meetings.begin()
            run(launches, window)
            self.card.synchronise()
            self.meetings.end(window, self.routed)
            for out, (values, ids, _), layer in zip(outs, wanted, LAYERS, strict=True):
                assert_same_bits(f"{n_rows} rows, layer {layer}, turn {turn}", out.read(values.shape), values)
                routed[int(is_prompt), layer] += np.bincount(ids.reshape(-1), minlength=self.c.n_experts).astype(np.int32)
            assert np.array_equal(self.routed, routed), "counts of routing"
            served[int(is_prompt)] += by_place
            assert np.array_equal(self.tier.served, served), f"served {self.tier.served.tolist()}, wanted {served.tolist()}"
        return by_place

    def one_by_one(self, launches, window: Window) -> None:
        """Send launches one by one, each layer served ahead of its meeting."""
        self.meetings.sender(window)(launches)
