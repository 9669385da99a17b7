"""The tables and the JSON of the card's benchmark, from made-up measurements: shares, floors, sums."""

import json

import pytest

from strata.cuda.card.compiling import why_no_compiler

if why_no_compiler() is not None:
    pytest.skip(str(why_no_compiler()), allow_module_level=True)

from strata.bench.gpu.floors import Floor, Operations
from strata.bench.gpu.geometry import REAL, with_layers
from strata.bench.gpu.kernel_times import KernelTime, Profile
from strata.bench.gpu.rates import Rates
from strata.bench.gpu.report import json_of, lines_of
from strata.bench.gpu.run import BenchSettings, ModelReport, Report
from strata.bench.gpu.tax import Tax
from strata.bench.gpu.windows import WindowSpeed
from strata.bench.spread import Spread

RATES = Rates(Spread.of([4e12]), Spread.of([3e12]), 1e15, 2e13)
SETTINGS = BenchSettings(with_layers(REAL, 4), 0, "Q4_K", ("Q2_0",), "Q6_K", (1,), (2048,), (1,), 3000, 0, 4096, 1, 5)


def speed(n_rows: int, ms: float, n_bytes: int, int8: int = 0, fused: int = 0) -> WindowSpeed:
    floor, operations = Floor(n_bytes, 0, 0, 0, 0, 0), Operations(int8, fused)
    return WindowSpeed(n_rows, 0, Spread.of([ms]), Spread.of([2 * ms]), Spread.of([7.0]), 10.0, floor, operations, 110, 26.0, 30.0, 27.0)


def report() -> Report:
    kernels = (
        KernelTime("gdn", 0, "dense_rows gdn.qkv", (640, 1), 128, 5.0, 4_000_000, 3, False),
        KernelTime("gdn", 1, "stream attention mixer.norm", (4, 1), 512, 2.0, 4_000, 3, True),
        KernelTime("qsa", 0, "stream attention mixer.norm", (4, 1), 512, 2.0, 4_000, 1, True),
    )
    model = ModelReport("Q2_0", 40_000_000_000, predicted_bytes=990, reported_bytes=1000)
    model.windows += [speed(1, 2.0, 4_000_000_000), speed(2048, 400.0, 4_000_000_000, int8=10**14, fused=10**12)]
    model.profiles.append(Profile(1, 0.030, kernels))
    model.taxes.append(Tax("one row", 5.5, 5.0))
    return Report("a card", "9.0", RATES, [model])


def test_shares_are_of_the_bytes_floor_for_windows_and_of_the_largest_floor_for_chunks():
    one, chunk = json_of(report(), SETTINGS)["models"][0]["windows"]
    assert one["floor_ms"] == pytest.approx(1.0) and one["of_floor"] == pytest.approx(0.5)
    assert one["tokens_per_second"] == pytest.approx(500) and one["wall_tokens_per_second"] == pytest.approx(250)
    assert (chunk["bytes_ms"], chunk["int8_ms"], chunk["fused_ms"]) == pytest.approx((1.0, 100.0, 50.0))
    assert chunk["floor_ms"] == pytest.approx(100.0) and chunk["of_floor"] == pytest.approx(0.25)


def test_json_is_plain_and_holds_the_memory_and_the_tax():
    found = json.loads(json.dumps(json_of(report(), SETTINGS)))
    model = found["models"][0]
    assert model["memory_error_percent"] == pytest.approx(-1.0) and model["taxes"][0]["percent"] == pytest.approx(10.0)
    assert found["geometry"]["n_layers"] == 4 and found["settings"]["dense"] == "Q4_K" and "config" not in found["settings"]
    profile = model["profiles"][0]
    assert profile["sum_ms"] == pytest.approx(0.023)
    assert profile["kernels"][0]["copy_us"] == pytest.approx(1.0) and profile["kernels"][0]["share"] == pytest.approx(0.2)


def test_the_table_shows_windows_chunks_tax_and_the_costliest_launch_first():
    lines = list(lines_of(report(), SETTINGS))
    text = "\n".join(lines)
    assert "memory predicted" in text and "(-1.00 %)" in text and "canonical tax, one row: 5.50 us, free order 5.00 us, +10.0 %" in text
    assert any(line.split()[:1] == ["1"] and "50.0 %" in line for line in lines)
    assert any(line.split()[:1] == ["2048"] and "25.0 %" in line for line in lines)
    dense, stream = (next(i for i, line in enumerate(lines) if line.startswith(name)) for name in ("dense_rows", "stream"))
    assert dense < stream and lines[stream].endswith("*") and not lines[dense].endswith("*")
    assert "65.2%" in lines[dense] and "100.0%" in lines[stream]
    assert lines[-1] == "sum 0.023 ms, window measured 0.030 ms, ratio 0.767"
