"""Trees over 8, 32 and 256 lanes: the written order, step by step, and no other."""

import numpy as np
import pytest

from tests.unit.numerics import compiled
from tests.unit.numerics.bounds import equal_bits
from tests.unit.numerics.document import sequence
from tests.unit.numerics.stranger.sums import dot, tree

TREES = {8: compiled.eight, 32: compiled.thirty_two, 256: compiled.two_hundred_fifty_six}
every_tree = pytest.mark.parametrize("n_lanes", TREES)


def random_lanes(n: int, n_lanes: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal((n, n_lanes)) * 2.0 ** generator.integers(-12, 12, (n, n_lanes))).astype(np.float32)


def of(lanes) -> np.ndarray:
    out = np.empty(len(lanes), np.float32)
    TREES[lanes.shape[1]](lanes.copy().reshape(-1), out)
    return out


def scalar_tree(lanes: list[np.float32]) -> np.float32:
    """One np.float32 sum at a time: lane l and lane l + half."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[lane] + lanes[lane + half] for lane in range(half)]
    return lanes[0]


def neighbours_tree(lanes: list[np.float32]) -> np.float32:
    """Another tree: neighbours first."""
    while len(lanes) > 1:
        lanes = [lanes[lane] + lanes[lane + 1] for lane in range(0, len(lanes), 2)]
    return lanes[0]


def chain(lanes: list[np.float32]) -> np.float32:
    total = np.float32(0)
    for lane in lanes:
        total = total + lane
    return total


@every_tree
def test_the_tree_is_the_halving_tree(n_lanes):
    lanes = random_lanes(200, n_lanes, seed=1)
    expected = np.array([scalar_tree(list(row)) for row in lanes])
    assert equal_bits(of(lanes), expected) and equal_bits(tree(lanes), expected)


@every_tree
@pytest.mark.parametrize("other", [neighbours_tree, chain])
def test_another_order_has_other_bits(n_lanes, other):
    lanes = random_lanes(200, n_lanes, seed=2)
    assert not equal_bits(of(lanes), np.array([other(list(row)) for row in lanes]))


def test_the_eight_lane_tree_is_as_the_document_writes_it_out():
    lanes = random_lanes(200, 8, seed=3)
    a = [lanes[:, lane] for lane in range(8)]
    assert equal_bits(of(lanes), ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])))


@every_tree
def test_each_lane_stands_where_it_should(n_lanes):
    """Swapping two lanes that meet in the first step changes nothing, any other swap changes some sum."""
    lanes = random_lanes(300, n_lanes, seed=4)
    swapped = lanes.copy()
    swapped[:, [0, n_lanes // 2]] = lanes[:, [n_lanes // 2, 0]]
    assert equal_bits(of(swapped), of(lanes))
    swapped = lanes.copy()
    swapped[:, [0, 1]] = lanes[:, [1, 0]]
    assert not equal_bits(of(swapped), of(lanes))


@pytest.mark.parametrize("n", [8, 96, 600])
def test_lanes_are_chains_from_zero_in_ascending_order(n):
    """The stranger's vectorised lanes against one scalar chain per lane."""
    from tests.unit.numerics.stranger.arithmetic import fma

    a, b = sequence(1, n), sequence(2, n)
    for n_lanes in (8, 32, 256):
        lanes = [np.float32(0)] * n_lanes
        for i in range(n):
            lanes[i % n_lanes] = np.float32(fma(a[i], b[i], lanes[i % n_lanes]))
        assert equal_bits(np.array(scalar_tree(lanes)), dot(a, b, n_lanes))
