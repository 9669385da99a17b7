"""Float products against the written order: 256 lanes and the halving tree, step by step in numpy."""

import numpy as np
import pytest

from strata.cpu_pool.team import Team
from strata.host.float_products import float_product

LANES = 256
LENGTHS = (1, 7, 32, 63, 64, 65, 255, 256, 257, 600)


def written_order(weights, x):
    """One product in the order of the contract.

    Each fused multiply-add is taken in float64 (the product of two float32 is exact there) and then rounded; a double
    rounding would show as a difference and is avoided by values of few bits.
    """
    lanes = np.zeros(LANES, np.float32)
    for i, (w, v) in enumerate(zip(weights, x, strict=True)):
        lanes[i % LANES] = np.float32(np.float64(w) * np.float64(v) + np.float64(lanes[i % LANES]))
    while lanes.size > 1:
        half = lanes.size // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


def short_floats(rng, shape):
    """Random float32 with 8 significant bits and exponents close together: sums of two products fit a float64."""
    return (rng.integers(-255, 256, shape) * 2.0 ** rng.integers(-6, 6, shape)).astype(np.float32)


def product(weights, x):
    out = np.empty((x.shape[0], weights.shape[0]), np.float32)
    with Team(1) as team:
        float_product("F32")(team.control, weights, x, out)
    return out


@pytest.mark.parametrize("n_in", LENGTHS)
def test_every_length_follows_the_written_order(n_in):
    rng = np.random.default_rng([11, n_in])
    weights, x = short_floats(rng, (5, n_in)), short_floats(rng, (3, n_in))
    expected = np.array([[written_order(w, row) for w in weights] for row in x])
    np.testing.assert_array_equal(product(weights, x).view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("n_in", LENGTHS)
def test_products_that_vanish_below_zero_sum_to_plus_zero_like_the_empty_lanes(n_in):
    tiny = np.full((2, n_in), np.float32(-1e-40))
    out = product(tiny, np.full((1, n_in), np.float32(1e-10)))
    expected = written_order(tiny[0], np.full(n_in, np.float32(1e-10)))
    assert np.signbit(out).tolist() == [[bool(np.signbit(expected))] * 2]
    assert np.signbit(expected) == (n_in >= LANES), "only a full set of lanes keeps the sign of -0"


def test_another_order_of_lanes_differs():
    rng = np.random.default_rng(12)
    weights, x = rng.standard_normal((8, 64), dtype=np.float32), rng.standard_normal((4, 64), dtype=np.float32)
    shuffled = rng.permutation(64)
    assert (product(weights, x) != product(weights[:, shuffled].copy(), x[:, shuffled].copy())).any()
