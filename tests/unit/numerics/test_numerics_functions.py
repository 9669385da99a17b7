"""exp, sigmoid, silu and softplus: errors against float64, edges, and the stranger's bits."""

import numpy as np
import pytest

from tests.unit.numerics import compiled
from tests.unit.numerics.bounds import FUNCTION_UNITS, equal_bits, units_off
from tests.unit.numerics.document import float32_of
from tests.unit.numerics.stranger import functions as plain

NAMES = tuple(FUNCTION_UNITS)
INFINITY = np.float32(np.inf)
WORST = {"exp": ("c0bc86a8", "4240b6ab"), "sigmoid": ("c0bc816f", "3a000201"), "silu": ("c0bb9ae2", "3c7edb2e"), "softplus": ("c02e7533", "3c9b1f70")}
"""Where the largest errors over all float32 arguments were found, below and above zero."""

every_function = pytest.mark.parametrize("name", NAMES)


def true_value(name: str, x) -> np.ndarray:
    x = x.astype(np.float64)
    with np.errstate(over="ignore"):
        if name == "exp":
            return np.exp(x)
        if name == "softplus":
            return np.where(x > 20, x, np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))
        return (x if name == "silu" else 1.0) / (1.0 + np.exp(-x))


def sample(n: int, seed: int) -> np.ndarray:
    """n float32 numbers between EXP_LOWEST and EXP_HIGHEST: evenly spread ones, and random bits of any size."""
    generator = np.random.default_rng(seed)
    spread = generator.uniform(-87.33, 88.72, n // 2).astype(np.float32)
    patterns = generator.integers(0, float32_of("42ae0000").view(np.uint32), n - n // 2, np.uint32)
    signs = generator.integers(0, 2, n - n // 2).astype(np.uint32) << np.uint32(31)
    return np.concatenate((spread, (patterns | signs).view(np.float32)))


def of(name: str, x) -> np.ndarray:
    return compiled.floats_of(compiled.FUNCTIONS[name], x)


@every_function
def test_errors_stay_within_the_documented_bound(name):
    x = sample(400_000, seed=1)
    expected = true_value(name, x)
    normal = (np.abs(expected) >= 2.0**-126) & (x > -87.33)
    assert units_off(of(name, x)[normal], expected[normal]).max() <= FUNCTION_UNITS[name]


@every_function
def test_the_worst_arguments_reach_the_documented_bound(name):
    """So the bound is tight: a looser function would be noticed, and a bound that creeps too."""
    x = np.array([float32_of(word) for word in WORST[name]], np.float32)
    worst = units_off(of(name, x), true_value(name, x)).max()
    assert 0.95 * FUNCTION_UNITS[name] < worst <= FUNCTION_UNITS[name]


@every_function
def test_the_stranger_gives_the_same_bits(name):
    x = np.concatenate((sample(100_000, seed=2), np.random.default_rng(3).integers(0, 2**32, 20_000, np.uint32).view(np.float32)))
    assert equal_bits(of(name, x), getattr(plain, name)(x))


def test_exp_below_has_the_bits_of_exp_where_nothing_is_above_zero():
    edges = np.array([0.0, -0.0, -87.33, np.nextafter(np.float32(-87.33), np.float32(0)), -np.inf, np.nan], np.float32)
    x = np.concatenate((-np.abs(sample(400_000, seed=5)), edges, -np.abs(np.random.default_rng(6).integers(0, 2**32, 20_000, np.uint32).view(np.float32))))
    assert equal_bits(of("exp_below", x), of("exp", x))


def test_numpys_exponential_has_other_bits():
    x = sample(10_000, seed=4)
    assert not equal_bits(of("exp", x), np.exp(x))


def test_exp_is_zero_at_its_lower_limit_and_normal_above():
    limit = np.float32(-87.33)
    x = np.array([limit, np.nextafter(limit, np.float32(0)), -100, -np.inf], np.float32)
    zero, smallest, *below = of("exp", x)
    assert equal_bits(np.array([zero, *below]), np.zeros(3, np.float32))
    assert 2.0**-126 < smallest < 2.0**-125


def test_exp_is_infinite_above_its_upper_limit_and_finite_at_it():
    limit = np.float32(88.72)
    assert np.isfinite(of("exp", [limit])[0])
    assert of("exp", [np.nextafter(limit, INFINITY), 100, np.inf]).tolist() == [np.inf] * 3


@every_function
def test_nan_stays_nan(name):
    assert np.isnan(of(name, [np.nan, -np.nan])).all()


def test_zeros():
    zeros = [0.0, -0.0]
    assert of("exp", zeros).tolist() == [1, 1] and of("sigmoid", zeros).tolist() == [0.5, 0.5]
    assert equal_bits(of("silu", zeros), np.array(zeros, np.float32))
    assert of("softplus", zeros)[0] == of("softplus", zeros)[1] == np.float32(np.log(2))


def test_infinities():
    both = [np.inf, -np.inf]
    assert of("sigmoid", both).tolist() == [1, 0] and of("softplus", both).tolist() == [np.inf, 0]
    up, down = of("silu", both)
    assert up == np.inf and np.isnan(down)


def test_softplus_is_the_argument_above_twenty():
    above = np.nextafter(np.float32(20), INFINITY)
    assert of("softplus", [above])[0] == above
    assert of("softplus", [20.0])[0] == np.float32(20)
    below = np.float32(19.5)
    assert of("softplus", [below])[0] == np.float32(np.log1p(np.exp(np.float64(below))))


@every_function
def test_a_lone_value_has_the_bits_it_has_among_others(name):
    """Vector code for whole registers and scalar code for what is left over must agree."""
    x = sample(67, seed=5)
    whole = of(name, x)
    assert all(equal_bits(of(name, x[i : i + 1]), whole[i : i + 1]) for i in (0, 1, 7, 8, 31, 33, 63, 64, 66))
