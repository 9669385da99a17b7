"""`strata env` and `strata bench host`: complete, sane, and machine-readable."""

import json

import pytest

from strata.bench.spread import Spread
from tests.cli.calls import strata
from tests.unit.model import synthetic


def test_env_names_what_bits_and_speed_depend_on():
    facts = json.loads(strata("env", "--json").out)
    assert {"python", "numba", "llvmlite", "numpy", "system", "processor", "features", "usable cores", "kernel cache"} <= facts.keys()
    assert all(isinstance(value, str) and value for value in facts.values())


def test_env_for_people_holds_the_same_names():
    assert json.loads(strata("env", "--json").out).keys() == {line[:16].strip() for line in strata("env").out.splitlines()}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    model = synthetic.build(context_length=256).write(tmp_path_factory.mktemp("bench") / "tiny.gguf")
    return ("bench", "host", "--model", model, "--rounds", 1)


def test_bench_host_measures_both_rates_and_the_floor(bench):
    measured = json.loads(strata(*bench, "--json").out)
    for name in ("decode", "read", "bandwidth"):
        assert 0 < measured[name]["least"] <= measured[name]["median"] <= measured[name]["most"]
    assert measured["token_bytes"] > 0 and measured["n_rounds"] == 1
    assert measured["settings"]["model"] == "tiny.gguf"


def test_bench_host_prints_the_floor_beside_the_speed(bench):
    out = strata(*bench).out
    assert "decoding, one conversation" in out and "floor of decoding" in out and "times the floor" in out


def test_a_spread_is_the_median_with_its_ends():
    assert Spread.of([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0)
