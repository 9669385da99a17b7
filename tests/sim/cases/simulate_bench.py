"""`strata bench gpu` composed at a small geometry: every step runs, on launches that are prepared and never sent.

The generator's kernel itself runs, and must give the bytes of its twin on the host.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from strata.bench.gpu import rates, windows
from strata.bench.gpu.clocks import TimedDevice
from strata.bench.gpu.patterns import generated, pattern_of
from strata.bench.gpu.recorded import SizedWorkspace, address_of, is_array
from strata.bench.gpu.report import json_of, lines_of
from strata.bench.gpu.run import BenchSettings, measure
from strata.bench.gpu.stage import Generator, seed_of, stage_of, weights_of
from strata.bench.gpu.traffic import weights_on
from strata.bench.gpu.windows import decode_window
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.stage.executor import CudaExecutor
from strata.numerics.rounding import MODES
from tests.gpu import checks_twins
from tests.gpu.geometry import SMALL

CONFIG = replace(SMALL, n_layers=8)


class Clock:
    """An event whose times are always two milliseconds apart."""

    def record(self, stream=None) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, other) -> float:
        return 2.0


@pytest.fixture
def nothing_is_sent(monkeypatch):
    monkeypatch.setattr(Launch, "go", lambda self, stream=None: None)
    monkeypatch.setattr(CudaDevice, "event", lambda self, timing=False: Clock())


@pytest.fixture
def settings():
    return BenchSettings(
        CONFIG, 0, "Q4_K", ("Q2_0", "Q4_K"), "Q6_K", (1, 4), (16,), (1, 16), position=300, chunk_position=0, context=512, seed=3, n_times=2,
        copied_bytes=1 << 16,
    )


def test_a_whole_run(nothing_is_sent, settings):
    saved = []
    report = measure(settings, lambda text: None, lambda report: saved.append(json.dumps(json_of(report, settings))))
    text = "\n".join(lines_of(report, settings))
    print(text)
    assert [model.experts for model in report.models] == ["Q2_0", "Q4_K"]
    for model in report.models:
        assert model.remarks == []
        assert [speed.n_rows for speed in model.windows] == [1, 4, 16]
        assert {tax.name.split(" x ")[0] for tax in model.taxes} == {"one row", "16 rows"}
        assert [profile.n_rows for profile in model.profiles] == [1, 16]
        one = model.profiles[0]
        assert sum(kernel.count for kernel in one.kernels) == model.windows[0].n_launches
        assert {kernel.kind for kernel in one.kernels} == {"gdn", "qsa", "gdn with n-grams", "embedding", "head"}
        named = {kernel.name for kernel in one.kernels}
        assert any("gdn.qkv" in name for name in named) and any("experts.gate" in name for name in named) and any("head" in name for name in named)
    assert "rows, MB: dense" in text and len(saved) >= 12


def test_every_weight_is_given_to_a_launch_and_counted_as_in_the_floor(nothing_is_sent):
    weights = weights_of(CONFIG, "Q4_K", "Q2_0", "Q6_K")
    timed = TimedDevice(0)
    stage = stage_of(timed, CONFIG, weights, 3)
    executor = CudaExecutor(timed, CONFIG, stage, MODES["canonical"], "f16", 2, 512)
    executor.work = SizedWorkspace(timed, executor.work.purpose)
    at = weights_on(stage, weights)
    measured = windows.measure(executor, weights, at, decode_window(2, 300, CONFIG.vocabulary, 1), 1)
    given = {address_of(a) for launch in measured.recorded.program.launches for a in launch.arguments if is_array(a)}
    assert set(at) <= given
    counted = sum(weight.n_bytes for weight in at.values() if not weight.entry_bytes)
    constants = 8 * sum(len(values) for values in (CONFIG.ple_multipliers, CONFIG.ple_sizes, CONFIG.ple_offsets))
    assert counted - constants == measured.speed.floor.dense + measured.speed.floor.head
    banks = [weight for weight in at.values() if weight.entry_bytes and not weight.is_table]
    assert len(banks) == 3 * CONFIG.n_layers and all(weight.n_bytes == CONFIG.n_experts * weight.entry_bytes for weight in banks)
    assert len(measured.traffic.state) == 2 * len(CONFIG.gdn_layers) and set(measured.traffic.state) <= given


@pytest.mark.parametrize("type_name", ["Q2_0", "Q6_K", "F32"])
def test_the_card_generates_what_its_twin_does(card, type_name):
    raw = card.empty("test", 1260, np.uint8)
    generator = Generator(card, 5)
    generator.fill(raw, type_name)
    assert np.array_equal(raw.copy_to_host(), generated(pattern_of(type_name), 1260, seed_of(6)))


def test_the_reading_kernel_reads_every_piece(card):
    words = card.upload("test", np.arange(4 * 700, dtype=np.int32))
    out = card.empty("test", rates.THREADS, np.int32)
    Launch(card, rates.read_kernel(card.target), Shape((1, 1), rates.THREADS), (words, np.int64(700), out)).go()
    assert np.bitwise_xor.reduce(out.copy_to_host()) == np.bitwise_xor.reduce(np.arange(4 * 700, dtype=np.int32))


def test_twins_compute_the_same_products(card):
    checks_twins.check_packed(card, "Q4_K", 1, 32, 512)
    checks_twins.check_packed(card, "Q4_K", 9, 32, 256)
    checks_twins.check_floats(card, "BF16", 2, 1024)
