"""The best of a row, ties, and log probabilities."""

import math

import mpmath
import numpy as np
import pytest

from strata.sampling.candidates import best_candidates, log_of_total

SEED = 7


def by_sorting(values: np.ndarray, count: int) -> list[int]:
    return sorted(range(len(values)), key=lambda i: (-float(values[i]), i))[:count]


@pytest.mark.parametrize("count", [1, 2, 5, 64])
@pytest.mark.parametrize("levels", [2, 17, 100_000])
def test_candidates_are_those_of_a_sort_with_ties_to_the_lower_id(count, levels):
    values = np.random.default_rng(SEED).integers(-levels, levels, 300).astype(np.float32)
    ids, best = best_candidates(values, count)
    assert ids.tolist() == by_sorting(values, count)
    assert best.tolist() == [float(values[i]) for i in ids]


def test_a_tie_at_the_border_keeps_the_lower_id():
    values = np.array([1, 3, 2, 3, 3, 2], np.float32)
    assert best_candidates(values, 2)[0].tolist() == [1, 3]
    assert best_candidates(values, 4)[0].tolist() == [1, 3, 4, 2]


def test_negative_zero_ties_with_zero():
    assert best_candidates(np.array([-0.0, 0.0, -1.0], np.float32), 2)[0].tolist() == [0, 1]


def test_a_short_vocabulary_gives_all_it_has():
    ids, _ = best_candidates(np.array([0.5, 0.25, 2.0], np.float32), 64)
    assert ids.tolist() == [2, 0, 1]


@pytest.mark.parametrize("n", [1, 255, 256, 257, 4096])
def test_the_log_of_the_total_is_right(n):
    values = (np.random.default_rng(n).normal(size=n) * 4).astype(np.float32)
    top = float(values.max())
    with mpmath.workprec(120):
        exact = mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(v) - top) for v in values.tolist()))
    assert abs(log_of_total(values, np.float64(top)) - float(exact)) < 1e-13 * max(1.0, float(exact))


def test_the_sum_runs_in_256_lanes():
    """A value that a chain from the left would lose, and lanes keep."""
    values = np.full(512, -36.0, np.float32)
    values[0] = 0.0
    tiny = float(mpmath.exp(-36))
    in_lanes = [1.0 + tiny, *[tiny + tiny] * 255]
    while len(in_lanes) > 1:
        half = len(in_lanes) // 2
        in_lanes = [a + b for a, b in zip(in_lanes[:half], in_lanes[half:], strict=True)]
    from_the_left = 1.0
    for _ in range(511):
        from_the_left += tiny
    assert from_the_left != in_lanes[0]
    assert log_of_total(values, np.float64(0)) == pytest.approx(math.log1p(in_lanes[0] - 1), rel=1e-3)
