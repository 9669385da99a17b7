"""exp and log in double: errors against many-digit arithmetic, special values, and bits that hold on every machine."""

import hashlib
import math

import mpmath
import numpy as np
import pytest

from strata.sampling.candidates import exponentials, logarithm

SEED = 20_261_130


def error_in_last_places(got: float, exact: mpmath.mpf) -> float:
    """Distance in units of the last place of the exact value, rounded."""
    return float(abs(mpmath.mpf(got) - exact) / mpmath.mpf(float(np.spacing(abs(float(exact))))))


def arguments() -> np.ndarray:
    draw = np.random.default_rng(SEED)
    return np.concatenate((draw.uniform(-745, 709.7, 3000), draw.uniform(-1, 1, 3000), -draw.exponential(1e-3, 500)))


def test_exp_is_within_12_tenths_of_a_last_place():
    with mpmath.workprec(200):
        pairs = zip(exponentials(arguments()).tolist(), arguments().tolist(), strict=True)
        assert max(error_in_last_places(got, mpmath.exp(x)) for got, x in pairs) < 1.2


def test_log_is_within_three_last_places():
    draw = np.random.default_rng(SEED)
    values = np.concatenate((np.exp(draw.uniform(-700, 700, 3000)), draw.uniform(0.3, 3, 3000), 1 + 1e-6 * draw.normal(size=500)))
    with mpmath.workprec(200):
        assert max(error_in_last_places(logarithm(x), mpmath.log(x)) for x in values.tolist() if x != 1) < 3


@pytest.mark.parametrize(
    ("x", "expected"),
    [(0.0, 1.0), (-0.0, 1.0), (-1e9, 0.0), (-math.inf, 0.0), (-746.0, 0.0), (710.0, math.inf), (math.inf, math.inf), (-745.1, 5e-324)],
)
def test_exp_of_special_values(x, expected):
    assert exponentials(np.array([x]))[0] == expected


@pytest.mark.parametrize(("x", "expected"), [(1.0, 0.0), (0.0, -math.inf), (math.inf, math.inf)])
def test_log_of_special_values(x, expected):
    assert logarithm(np.float64(x)) == expected


def test_nan_and_negative_numbers_have_no_logarithm():
    assert math.isnan(exponentials(np.array([math.nan]))[0])
    assert math.isnan(logarithm(np.float64(math.nan))) and math.isnan(logarithm(np.float64(-1)))


def test_the_bits_are_these_on_every_machine():
    grid = np.arange(-5800, 5600, 7) / 8
    logs = np.array([logarithm(x) for x in np.arange(1, 2000) / np.float64(64)])
    assert hashlib.sha256(exponentials(grid).tobytes()).hexdigest()[:32] == "21c6adb77169aa8a6d9e65804bceacc8"
    assert hashlib.sha256(logs.tobytes()).hexdigest()[:32] == "6c0650b8cdf69853165a08e0ed09b44f"


def test_exp_is_not_the_platforms_own():
    """The golden bits would prove nothing if any accurate exp gave them."""
    values = arguments()
    assert np.count_nonzero(exponentials(values) != np.array([math.exp(x) for x in values])) > 10
