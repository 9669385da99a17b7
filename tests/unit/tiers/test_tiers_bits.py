"""A layer's experts computed in three places: the stranger's bits, in canonical mode wherever they lie, in `device` as documented."""

import numpy as np
import pytest

from strata.experts.residency import ABSENT
from strata.host.coding import round_to_halves
from tests.unit.host.engine_steps import first_difference, new_stranger, one_slot, prompt, run_points, stranger_tensors
from tests.unit.numerics.document import float32_of, vectors
from tests.unit.numerics.stranger.model import Stranger
from tests.unit.tiers.opened import RamArena, tiered

N = 6


def some_pairs(config, step: int = 2) -> list[tuple[int, int]]:
    return [(layer, expert) for layer in range(config.n_layers) for expert in range(0, config.n_experts, step)]


def stranger_with_pool(executor, tier) -> Stranger:
    """A stranger whose pool computes what the tier does not hold."""
    plain = new_stranger("device", "f16")
    absent = np.argwhere(tier.residency.slot_of == ABSENT).tolist()
    return Stranger(stranger_tensors(), plain.config, "device", "f16", frozenset(map(tuple, absent)))


@pytest.fixture(scope="module")
def config():
    executor = tiered("canonical", [])
    executor.device.close()
    return executor.config


@pytest.mark.parametrize("share", [0, 141, 256])
@pytest.mark.parametrize("step", [1, 2, 1000])
def test_where_experts_lie_changes_no_bit_in_canonical_mode(config, step, share):
    executor = tiered("canonical", some_pairs(config, step), share)
    found = run_points(executor, one_slot(prompt(N)))
    executor.device.close()
    assert first_difference(found, new_stranger("canonical", "f16").run(prompt(N))) is None
    cached, fetched, pooled = executor.tier.served[0]
    assert (cached > 0, fetched > 0, pooled > 0) == (True, step > 1 and share > 0, step > 1 and share < 256)


def test_experts_in_ram_copies_are_the_files(config):
    executor = tiered("canonical", some_pairs(config), 64, RamArena)
    found = run_points(executor, one_slot(prompt(N)))
    executor.device.close()
    assert first_difference(found, new_stranger("canonical", "f16").run(prompt(N))) is None


@pytest.mark.parametrize("step", [1, 2])
def test_mode_device_is_the_one_that_is_documented(config, step):
    executor = tiered("device", some_pairs(config, step))
    found = run_points(executor, one_slot(prompt(N)))
    executor.device.close()
    assert first_difference(found, stranger_with_pool(executor, executor.tier).run(prompt(N))) is None


def test_fetched_experts_are_coded_as_resident_ones_in_mode_device(config):
    executor = tiered("device", some_pairs(config), 256)
    found = run_points(executor, one_slot(prompt(N)))
    executor.device.close()
    assert executor.tier.served[0][1] > 0
    assert first_difference(found, new_stranger("device", "f16").run(prompt(N))) is None


def test_mode_device_tells_the_pool_from_a_device(config):
    executor = tiered("device", some_pairs(config))
    found = run_points(executor, one_slot(prompt(N)))
    executor.device.close()
    assert first_difference(found, new_stranger("device", "f16").run(prompt(N))).startswith("moe of layer 0")
    assert first_difference(found, new_stranger("canonical", "f16").run(prompt(N))).startswith("attention of layer 0")


def test_a_stale_slot_would_be_seen(config):
    executor = tiered("canonical", some_pairs(config, 1))
    executor.tier.memory.load(0, 1, int(executor.tier.residency.slot_of[0, 0]))
    executor.tier.memory.load(0, 0, int(executor.tier.residency.slot_of[0, 1]))
    found = run_points(executor, one_slot(prompt(13)))
    executor.device.close()
    assert first_difference(found, new_stranger("canonical", "f16").run(prompt(13))) is not None


def test_half_scales_are_those_of_the_document():
    for a, dx, stored in vectors("half-scales"):
        with np.errstate(all="ignore"):
            assert float32_of(a) / np.float32(127) == float32_of(dx)
        scales = np.array([[float32_of(dx)], [float32_of(dx)]])
        round_to_halves(scales, np.array([False, True]))
        assert scales[:, 0].tolist() == [float32_of(dx), float32_of(stored)]
    nan = np.full((1, 1), np.nan, np.float32)
    round_to_halves(nan, np.array([True]))
    assert np.isnan(nan).all()
