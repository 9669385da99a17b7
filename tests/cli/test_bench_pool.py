"""`strata bench pool`: complete, machine-readable, and refused where there is nothing to measure."""

import json

import pytest

from strata.bench.pool import RowSpeed
from strata.bench.spread import Spread
from strata.cpu_pool.instruction_sets import PLAIN, instruction_set
from tests.cli.calls import strata

needs_rows = pytest.mark.skipif(instruction_set() == PLAIN, reason="this CPU has no AVX2: there is nothing to measure")
CALL = ("bench", "pool", "--formats", "Q8_0", "--rounds", 1, "--threads", 1)


@needs_rows
def test_every_figure_is_there_for_every_format_and_count_of_threads():
    measured = json.loads(strata(*CALL, "--json").out)
    assert measured["instructions"] == instruction_set() and measured["n_rounds"] == 1
    (found,) = measured["formats"]
    assert (found["format"], found["n_threads"]) == ("Q8_0", 1)
    assert found["n_bytes"] * 32 == found["n_weights"] * 34
    for name in ("bandwidth", "one_row", "eight_rows", "cached"):
        assert 0 < found[name]["least"] <= found[name]["median"] <= found[name]["most"]
    assert found["bound"] in ("memory", "vector unit")
    assert found["weights_per_core"] == pytest.approx(found["n_weights"] / found["one_row"]["median"])


@needs_rows
def test_the_table_names_its_columns_and_the_instructions():
    out = strata(*CALL).out
    assert instruction_set() in out and "8 rows / 1" in out and "bound" in out
    assert out.splitlines()[-1].startswith("Q8_0")


def test_float_types_are_refused():
    assert "formats=BF16: its rows are floats" in strata("bench", "pool", "--formats", "BF16").err


def test_the_bound_is_what_allows_fewer_weights():
    def speed(cached):
        one = Spread.of([1.0])
        return RowSpeed("Q8_0", 2, 320, 340, Spread.of([34.0]), one, Spread.of([3.0]), Spread.of([cached]))

    assert (speed(40.0).bound, speed(20.0).bound) == ("memory", "vector unit")
    assert (speed(40.0).of_bandwidth, speed(40.0).weights_per_core, speed(40.0).eight_to_one) == (10.0, 160.0, 3.0)
