"""Observed windows: a toy model's points against the host's, changes that observers make, and what is done where nobody looks."""

import numpy as np
import pytest

from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch
from strata.cuda.stage.observed import show
from strata.cuda.stage.taps import CardTaps, Tap, turned, whole
from strata.errors import UsageError
from strata.model.model import load_model
from strata.rows import Segment, Window
from strata.split.probes import SilentProbe, attach
from strata.windows.stage_pass import run_stage
from tests.gpu.checks_taps import Every, ObservedPair
from tests.gpu.geometry import window_of
from tests.unit.harness.scopes import shipped
from tests.unit.model import synthetic

TOY = {
    "n_layers": 2, "qsa_interval": 2, "ple_layers": (0,), "n_q_heads": 2, "n_kv_heads": 1, "head_dim": 32, "indexer_dim": 32, "n_indexer_heads": 1,
    "expert_ff": 32, "shared_ff": 32, "ssm_state": 64, "n_ssm_qk_heads": 1, "n_ssm_v_heads": 1,
}
CHANGED = ("attention.mixed", "gdn.codes", "gdn.scan", "moe.ids", "moe.hidden", "gdn.memory.read", "moe.residual")
"""Points whose values were used already by the launch that made them, codes, state, and a plain one."""


def change(point: str, layer: int, values: np.ndarray) -> None:
    """The same change on host and card: ids in the other order of experts, else the lowest bit of the first value."""
    if point == "moe.ids":
        values[0] = (values[0] + 1) % 8
    elif point in CHANGED:
        values.reshape(-1).view(f"u{values.itemsize}")[0] ^= 1


def test_every_point_has_the_bits_of_the_host_and_changes_are_computed_with(tmp_path, card):
    """A kept window, then one of two segments of which one is kept, with changes at many points."""
    model = load_model(synthetic.build(seed=3, types={"output.weight": "BF16"}, **TOY).write(tmp_path / "toy.gguf"))
    tokens = iter(range(1, 100, 7))
    one = Window.of([Segment(0, 0, (next(tokens),))], True)
    two = Window.of([Segment(0, 1, (next(tokens),)), Segment(1, 0, (next(tokens),))], False)
    with ObservedPair(card, model, "f16", 2, 32) as pair:
        points = pair.run(one) | pair.run(two, [0, 1], change)
        assert points >= {*CHANGED, "ngram.rows", "ngram.history.stored", "qsa.attended", "moe.hidden.scales", "gdn.memory.stored", "logits"}
        assert not pair.card.programs.by_key and not pair.card.graphs.graphs


def test_codes_turn_as_kernels_turn_them():
    codes = np.arange(-64, 64, dtype=np.int8).reshape(2, 64)
    twin = turned(codes)
    for row in range(2):
        for group in range(4):
            for a in range(4):
                for b in range(4):
                    assert twin[row, 16 * group + 4 * b + a] == codes[row, 16 * group + 4 * a + b]
    assert np.array_equal(turned(twin), codes)


def test_only_the_lines_of_a_range_are_copied_and_put_back(card):
    array = card.upload("state", np.arange(12, dtype=np.float32))
    tap = Tap(0, "gdn.tail.read", 0, array, (4, 3), whole, lambda window, kept: [(1, 2)])

    def observe(window, point, layer, values, place):
        assert values.tolist() == [[0, 0, 0], [3, 4, 5], [6, 7, 8], [0, 0, 0]]
        values[:] = -1

    show(card, observe, tap, window_of((0, 0, 1)), np.array([1], np.int32))
    assert array.copy_to_host().tolist() == [0, 1, 2, -1, -1, -1, -1, -1, -1, 9, 10, 11]


def test_changed_codes_take_their_turned_copy_and_sums_along(card):
    codes = np.arange(32, dtype=np.int8)
    placed, twin, totals = card.upload("codes", codes), card.upload("turned", turned(codes)), card.upload("sums", np.zeros(1, np.int32))
    tap = Tap(0, "gdn.codes", 0, placed, (1, 32), whole, coded=(twin, totals))

    def observe(window, point, layer, values, place):
        values[0, 5] = 99

    show(card, observe, tap, window_of((0, 0, 1)), np.array([1], np.int32))
    assert placed.copy_to_host()[5] == 99 and np.array_equal(twin.copy_to_host(), turned(placed.copy_to_host()))
    assert totals.copy_to_host().tolist() == [codes.sum() - 5 + 99]


def test_what_was_made_of_changed_values_is_made_once_more(card):
    x, y, again = card.upload("x", np.zeros(4, np.float32)), card.upload("y", np.zeros(4, np.float32)), []
    taps = CardTaps(frozenset({"gdn.scan"}))
    taps.see("gdn.scan", 0, x, 2, 2, None, lambda: again.append(len(again)) or [])
    taps.see("gdn.gated", 0, y, 2, 2)
    (tap,) = taps.taken

    def change(window, point, layer, values, place):
        values[1, 1] = 5

    for observe, wanted in ((lambda *seen: None, []), (change, [0]), (change, [0])):
        show(card, observe, tap, window_of((0, 0, 2)), np.array([2], np.int32))
        assert again == wanted
    assert x.copy_to_host().tolist() == [0, 0, 0, 5]


@pytest.mark.parametrize("is_changed", [True, False])
def test_a_change_that_would_not_be_computed_with_is_refused(is_changed, card):
    tap = Tap(0, "qsa.attended", 3, card.upload("out", np.ones(4, np.float32)), (1, 4), whole, is_final=True)

    def observe(window, point, layer, values, place):
        values[0, 0] += is_changed

    if not is_changed:
        show(card, observe, tap, window_of((0, 0, 1)), np.array([1], np.int32))
        return
    with pytest.raises(UsageError, match="qsa.attended"):
        show(card, observe, tap, window_of((0, 0, 1)), np.array([1], np.int32))


class Counting(SilentProbe):
    """Notes the points that it is shown."""

    def __init__(self, points) -> None:
        self.points, self.seen = points, []

    def see(self, stage, window, point, layer, values, place) -> None:
        self.seen.append(point)


def sent_by(monkeypatch, *points) -> tuple[list[list[str]], list[list[str]], int]:
    """Run one window under each set of watched points, on one engine; return kernels sent, points seen, graphs replayed."""
    sent: list[str] = []
    monkeypatch.setattr(Launch, "go", lambda self, stream=None: sent.append(f"{self.dispatcher.fn.__qualname__} {self.programmatic}"))
    honest = CudaDevice.empty

    def zeros(self, purpose, shape, dtype):
        array = honest(self, purpose, shape, dtype)
        array.copy_to_device(np.zeros(shape, dtype))
        return array

    monkeypatch.setattr(CudaDevice, "empty", zeros)
    kernels, seen = [], []
    with Engine(shipped()[0], EngineSettings(devices="cuda:0", batch=2, context=256, pipelined=False)) as engine:
        executor = engine.stages[0].executor
        for wanted in points:
            executor.observe, executor.watched = None, frozenset()
            probe = Counting(wanted)
            if wanted is not None:
                attach(probe, engine.stages)
            sent.clear()
            run_stage(executor, window_of((0, 3, 1), (1, 5, 2)), None)
            kernels.append(list(sent))
            seen.append(probe.seen)
        return kernels, seen, executor.graphs.n_replays


def test_where_nobody_looks_the_launches_are_the_same_before_and_after_an_observed_window(monkeypatch):
    kernels, seen, n_replays = sent_by(monkeypatch, None, Every(), None, frozenset(), frozenset({"logits"}))
    assert kernels[0] == kernels[2] == kernels[3] == kernels[4] and n_replays == 4
    assert len(kernels[1]) > len(kernels[0]) and len(set(seen[1])) > 60
    assert not any(name.endswith("True") for name in kernels[1]), "a tap is no kernel: nothing may start early"
    assert seen[3] == [] and seen[4] == ["logits"]


def test_outlines_leave_joined_operations_joined(monkeypatch):
    (outlines, detailed), (seen, _), _ = sent_by(monkeypatch, frozenset({"embed", "moe.residual", "logits"}), frozenset({"gdn.scan"}))
    n_layers = shipped()[0].config.n_layers
    assert seen == ["embed", *["moe.residual"] * n_layers, "logits"]
    assert any("window_scan_kernel" in name for name in outlines) and not any("window_scan_kernel" in name for name in detailed)
