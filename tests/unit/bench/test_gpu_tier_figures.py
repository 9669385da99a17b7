"""The card's benchmark with a tier: what its figures say about known bytes and times."""

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest

if importlib.util.find_spec("numba_cuda") is None:
    pytest.skip("the package numba-cuda is not installed", allow_module_level=True)

from strata.bench.gpu.floors import Floor
from strata.bench.gpu.tier_windows import Counts, TierRates, TierSpeed
from strata.bench.spread import Spread
from strata.experts.residency import Residency

RATES = TierRates(card=1e12, ram=1e11, link=5e10)


def speed(**changes):
    figures = {
        "n_rows": 2, "position": 3000, "n_windows": 8, "wall_ms": Spread(20.0, 19.0, 22.0), "unworked_ms": Spread(6.0, 6.0, 6.0),
        "unmet_ms": Spread(5.0, 5.0, 5.0), "pool_ms": 10.0, "reach_ms": 4.0, "meetings": 40.0, "cached": 100.0, "fetched": 50.0, "pooled": 500.0,
        "floor": Floor(dense=10**9, experts=3 * 10**8, head=10**8, state=0, cells=0, tables=0), "expert_bytes": 2 * 10**6,
    }
    return TierSpeed(**{**figures, **changes})


def test_the_floor_is_the_slowest_of_card_ram_and_link():
    assert speed().parts_ms(RATES) == pytest.approx((1.4, 10.0, 2.0))
    assert speed().floor_ms(RATES) == pytest.approx(10.0)
    assert speed(pooled=10.0, fetched=0.0).floor_ms(RATES) == pytest.approx(1.4)


def test_experts_wait_for_what_comes_before_them():
    assert speed().chained_ms(RATES) == pytest.approx(1.1 + 10.0)
    assert speed(pooled=1.0, fetched=0.0).chained_ms(RATES) == pytest.approx(1.4)


def test_a_meeting_costs_what_remains_without_work():
    spared_ms = 1e3 * 550 * 2e6 / 1e12
    assert speed().meeting_us(RATES) == pytest.approx(1e3 * (6.0 - (5.0 - spared_ms)) / 40)
    assert speed(meetings=0.0).meeting_us(RATES) == 0.0


def test_rates_and_hits():
    one = speed()
    assert one.tokens_per_second == pytest.approx(100.0)
    assert one.pool_rate == pytest.approx(1e11) and speed(pool_ms=0.0).pool_rate == 0.0
    assert one.hits == pytest.approx(100 / 650)


def test_distinct_experts_are_counted_once_by_where_they_lie():
    routed, table = np.zeros((2, 3, 4), np.int32), Residency(3, 4, 2)
    table.settle(0, 1, 0)
    table.settle(2, 3, 1)
    counts = Counts(routed, SimpleNamespace(residency=table))
    routed[0, 0, 1] += 5
    routed[0, 0, 2] += 1
    counts.take()
    routed[0, 2, 3] += 1
    counts.take()
    assert (counts.cached, counts.missed) == (2, 1)
