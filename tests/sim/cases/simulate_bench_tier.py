"""`strata bench gpu --resident` composed at a small geometry: banks in RAM, cache, pool and figures, on launches that are never sent.

A stand-in for the card asks the pool for the experts of every layer that a draw misses; the jobs are the pool's own.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from strata.bench.gpu import tier_run
from strata.bench.gpu.run import BenchSettings
from strata.bench.gpu.tier_report import json_of, lines_of
from strata.bench.gpu.tier_run import TierSettings, measure
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch
from strata.cuda.tier.meeting import Meetings
from tests.gpu.geometry import SMALL
from tests.sim.cases.simulate_bench import Clock

CONFIG = replace(SMALL, n_layers=4)
SHARE = 0.25


@pytest.fixture
def drawn(monkeypatch):
    """Windows whose routers draw; the card's part is not computed, the pool's is."""
    draw, asked = np.random.default_rng(1), {"jobs": 0, "windows": 0}

    def window_of(meetings, window):
        routed, width, k = asked["routed"], CONFIG.hidden, CONFIG.n_used
        values = draw.standard_normal((window.n_rows, width)).astype(np.float32)
        for layer in meetings.layers:
            experts = np.sort(draw.permutation(CONFIG.n_experts)[:k]).astype(np.int32)
            routed[0, layer, experts] += window.n_rows
            missed = experts[meetings.tier.residency.slot_of[layer, experts] < 0]
            if len(missed):
                starts, rows = np.arange(len(missed) + 1, dtype=np.int32), np.zeros(len(missed), np.int32)
                out = np.full((len(missed), width), np.nan, np.float32)
                idle = meetings.tier.jobs.is_idle
                meetings.tier.jobs.compute(layer, missed, starts, rows, values, out, window.is_prompt)
                assert np.isfinite(out).all() != idle
                asked["jobs"] += 1
        asked["windows"] += 1

    monkeypatch.setattr(Launch, "go", lambda self, stream=None: None)
    monkeypatch.setattr(CudaDevice, "event", lambda self, timing=False: Clock())
    monkeypatch.setattr(Meetings, "replay", lambda self, graphs, key, launches, window: window_of(self, window))
    monkeypatch.setattr(Meetings, "sender", lambda self, window: lambda launches: window_of(self, window))
    monkeypatch.setattr(Meetings, "end", lambda self, window, routed: None)
    new_counts = tier_run.new_counts
    monkeypatch.setattr(tier_run, "new_counts", lambda *sizes: asked.setdefault("routed", new_counts(*sizes)))
    return asked


@pytest.mark.parametrize("pcie_frac", [0.0, 0.5])
def test_a_whole_run(drawn, pcie_frac):
    settings = BenchSettings(
        CONFIG, 0, "Q4_K", ("Q2_0",), "Q6_K", (1, 4), (16,), (), position=300, chunk_position=0, context=512, seed=3, n_times=1, copied_bytes=1 << 16,
    )
    tiers, saved = TierSettings(SHARE, pcie_frac, 1), []
    report = measure(settings, tiers, lambda text: None, lambda report: saved.append(json.dumps(json_of(report, settings, tiers))))
    text = "\n".join(lines_of(report, settings, tiers))
    print(text)
    model, = report.models
    assert model.n_slots == CONFIG.n_layers * CONFIG.n_experts * SHARE
    assert [speed.n_rows for speed in model.windows] == [1, 4, 16] and len(saved) == 3
    assert drawn["jobs"] > 0 and "25% of every layer's experts resident" in text
    for speed in model.windows:
        assert speed.meetings == CONFIG.n_layers and speed.cached + speed.fetched + speed.pooled == pytest.approx(CONFIG.n_layers * CONFIG.n_used)
        assert speed.fetched == 0 and 0 < speed.hits < 0.6 and speed.pool_ms > 0
        assert speed.floor_ms(report.rates) <= speed.chained_ms(report.rates)
    assert (report.rates.link > 0) == (pcie_frac > 0)
