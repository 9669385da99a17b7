"""The rank key: it orders all floats, and ties go to the lower index."""

import numpy as np
import pytest

from strata.numerics.ranking import best_two
from tests.unit.numerics import compiled
from tests.unit.numerics.stranger.functions import best_first
from tests.unit.numerics.stranger.functions import key as plain_key

ASCENDING = [-np.inf, -3e38, -1.5, -1.0, -1e-38, -1e-45, 0.0, 1e-45, 1e-38, 1.0, 1.5, 3e38, np.inf]


def keys(x) -> np.ndarray:
    return compiled.values_of(compiled.KEY, np.int32, np.array(x, np.float32))


def test_keys_ascend_with_the_floats():
    assert (np.diff(keys(ASCENDING).astype(np.int64)) > 0).all()


def test_nan_of_either_sign_is_below_minus_infinity():
    lowest = keys([np.nan, -np.nan])
    assert lowest[0] == lowest[1] == -(2**31) < keys([-np.inf])[0]


def test_zeros_are_equal():
    assert keys([0.0])[0] == keys([-0.0])[0]
    assert keys([1e-45])[0] > keys([0.0])[0] > keys([-1e-45])[0]


def test_random_floats_sort_by_key_as_by_value():
    x = np.random.default_rng(1).integers(0, 2**32, 50_000, np.uint32).view(np.float32)
    x = x[~np.isnan(x)]
    assert np.array_equal(x[np.argsort(keys(x), kind="stable")], np.sort(x, kind="stable"))


def test_the_strangers_keys_are_the_same():
    x = np.random.default_rng(2).integers(0, 2**32, 50_000, np.uint32).view(np.float32)
    assert np.array_equal(keys(x), plain_key(x))


@pytest.mark.parametrize(
    ("values", "first", "second"),
    [
        ([1, 3, 3, 2], 1, 2),
        ([3, 1, 2, 3], 0, 3),
        ([0.0, -0.0], 0, 1),
        ([-0.0, 0.0], 0, 1),
        ([-np.inf, -np.inf, -np.inf], 0, 1),
        ([np.nan, -np.inf], 1, 0),
        ([np.nan, np.nan], 0, 1),
        ([5], 0, -1),
        ([2, 1], 0, 1),
        ([1, 2], 1, 0),
    ],
)
def test_of_equal_values_the_lower_index_is_picked(values, first, second):
    assert best_two(np.array(values, np.float32))[:2] == (first, second)


def test_picks_agree_with_a_stable_sort_where_ties_abound():
    generator = np.random.default_rng(3)
    for _ in range(200):
        values = generator.integers(-2, 3, generator.integers(2, 40)).astype(np.float32)
        assert list(best_two(values)[:2]) == best_first(values)[:2].tolist()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_row_with_one_value_that_is_not_finite_is_not_finite(wrong):
    values = np.arange(10, dtype=np.float32)
    assert best_two(values)[2]
    values[3] = wrong
    assert not best_two(values)[2]
