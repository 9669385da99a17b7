"""The chain of filters and the draw, at its borders."""

import math

import numpy as np
import pytest

from strata.sampling.chain import draw, keep_min_p, keep_top_p
from strata.sampling.settings import Sampling

HALVES = np.log(np.array([0.5, 0.25, 0.125, 0.125]))
EVEN = np.zeros(4)


@pytest.mark.parametrize(("top_p", "kept"), [(0.0, 1), (0.1, 1), (0.25, 1), (0.2500001, 2), (0.5, 2), (0.75, 3), (0.7500001, 4), (1.0, 4), (2.0, 4)])
def test_top_p_keeps_through_the_first_index_that_reaches_it(top_p, kept):
    assert len(keep_top_p(EVEN, top_p)) == kept


@pytest.mark.parametrize(("min_p", "kept"), [(0.0, 4), (0.2, 4), (0.26, 2), (0.51, 1), (1.0, 1)])
def test_min_p_keeps_what_is_probable_enough_beside_the_first(min_p, kept):
    assert len(keep_min_p(HALVES, min_p)) == kept


def test_min_p_of_one_keeps_ties_with_the_first():
    assert len(keep_min_p(np.array([2.0, 2.0, 1.9]), 1.0)) == 2


@pytest.mark.parametrize(("u", "index"), [(0.0, 0), (0.2499999, 0), (0.25, 1), (0.5, 2), (0.75, 3), (1 - 2**-24, 3)])
def test_a_draw_falls_on_the_first_index_whose_cumulative_share_exceeds_it(u, index):
    assert draw(EVEN, Sampling(temperature=1.0), u) == index


def test_temperature_acts_after_top_p():
    """At temperature 100 four candidates are nearly even, but top_p saw them at temperature 1 and kept one."""
    hot = Sampling(temperature=100.0)
    assert draw(np.array([3.0, 0.0, 0.0, 0.0]), hot, 0.9) == 3
    assert draw(np.array([3.0, 0.0, 0.0, 0.0]), Sampling(temperature=100.0, top_p=0.5), 0.9) == 0


def test_a_tiny_temperature_takes_the_first_of_equals_by_the_draw():
    cold = Sampling(temperature=1e-300)
    assert draw(np.array([1.0, 1.0, 0.5]), cold, 0.4) == 0
    assert draw(np.array([1.0, 1.0, 0.5]), cold, 0.6) == 1
    assert draw(np.array([1.0, 0.9999, 0.5]), cold, 0.9999) == 0


def test_min_p_looks_at_what_top_p_left_and_filters_keep_the_order():
    values = np.log(np.array([0.4, 0.3, 0.2, 0.1]))
    assert draw(values, Sampling(temperature=1.0, top_p=0.69, min_p=0.7), 0.999) == 1
    assert draw(values, Sampling(temperature=1.0, top_p=0.69, min_p=0.8), 0.999) == 0


def test_one_candidate_is_always_drawn():
    assert draw(np.array([math.pi]), Sampling(temperature=0.3), 1 - 2**-24) == 0
