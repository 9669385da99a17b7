"""The choice of swaps: the rule itself on small cases, its ties, and what must hold for any usage."""

import numpy as np
import pytest

from strata.experts.adaptive import LEAST_USAGE, choose_swaps
from strata.experts.residency import ABSENT


def table(n_layers: int, n_experts: int, *resident) -> np.ndarray:
    """slot_of with the given (layer, expert) resident."""
    slot_of = np.full((n_layers, n_experts), ABSENT, np.int32)
    for slot, pair in enumerate(resident):
        slot_of[pair] = slot
    return slot_of


def usage_of(*rows) -> np.ndarray:
    return np.array(rows, np.float64)


def test_the_hottest_absent_takes_the_place_of_the_coldest_resident_of_its_layer():
    swaps = choose_swaps(usage_of([9, 1, 5, 7]), table(1, 4, (0, 0), (0, 1), (0, 2)), 0, 1.5, 96)
    assert swaps.tolist() == [[0, 3, 1]]


def test_pairs_go_on_while_the_gain_is_reached():
    slot_of = table(1, 6, (0, 0), (0, 1), (0, 2))
    assert choose_swaps(usage_of([1, 2, 3, 9, 8, 4]), slot_of, 0, 1.5, 96).tolist() == [[0, 3, 0], [0, 4, 1]]
    assert choose_swaps(usage_of([1, 2, 3, 9, 8, 4]), slot_of, 0, 1.0, 96).tolist() == [[0, 3, 0], [0, 4, 1], [0, 5, 2]]


def test_a_gain_that_is_just_reached_is_enough():
    assert len(choose_swaps(usage_of([2, 3.5]), table(1, 2, (0, 0)), 0, 1.5, 96)) == 1
    assert len(choose_swaps(usage_of([2, 3.25]), table(1, 2, (0, 0)), 0, 1.5, 96)) == 0


def test_what_was_used_less_than_twice_is_no_candidate():
    assert len(choose_swaps(usage_of([0, LEAST_USAGE - 0.1]), table(1, 2, (0, 0)), 0, 0.0, 96)) == 0
    assert len(choose_swaps(usage_of([0, LEAST_USAGE]), table(1, 2, (0, 0)), 0, 0.0, 96)) == 1


def test_layers_are_pooled_and_the_best_are_taken():
    usage = usage_of([0, 3], [0, 9], [1, 9])
    slot_of = table(3, 2, (0, 0), (1, 0), (2, 0))
    assert choose_swaps(usage, slot_of, 0, 1.5, 2).tolist() == [[1, 1, 0], [2, 1, 0]]
    assert choose_swaps(usage, slot_of, 0, 1.5, 0).tolist() == []


def test_ties_go_to_the_lower_layer_then_the_lower_id():
    usage = usage_of([0, 0, 5, 5], [0, 0, 5, 5])
    slot_of = table(2, 4, (0, 0), (0, 1), (1, 0), (1, 1))
    assert choose_swaps(usage, slot_of, 0, 1.5, 3).tolist() == [[0, 2, 0], [0, 3, 1], [1, 2, 0]]


def test_free_slots_take_the_hottest_of_all_layers_first():
    usage = usage_of([0, 4, 3], [0, 9, 2])
    swaps = choose_swaps(usage, table(2, 3, (0, 0), (1, 0)), 2, 1.5, 96)
    assert swaps.tolist() == [[1, 1, ABSENT], [0, 1, ABSENT], [0, 2, 0], [1, 2, 0]]
    assert choose_swaps(usage, table(2, 3, (0, 0), (1, 0)), 2, 1.5, 1).tolist() == [[1, 1, ABSENT]]


@pytest.mark.parametrize("seed", range(40))
def test_any_choice_keeps_the_rules(seed):
    draw = np.random.default_rng(seed)
    usage = draw.integers(0, 12, (4, 10)) * 0.7 ** draw.integers(0, 3)
    slot_of = np.where(draw.random((4, 10)) < 0.5, np.arange(40).reshape(4, 10), ABSENT).astype(np.int32)
    n_free, most, gain = int(draw.integers(0, 4)), int(draw.integers(0, 9)), float(draw.choice([0.0, 0.5, 1.5, 3.0]))
    swaps = choose_swaps(usage, slot_of, n_free, gain, most).tolist()
    assert len(swaps) <= most and sum(goes == ABSENT for _, _, goes in swaps) <= n_free
    assert len({(layer, comes) for layer, comes, _ in swaps}) == len(swaps)
    gone = [(layer, goes) for layer, _, goes in swaps if goes != ABSENT]
    assert len(set(gone)) == len(gone)
    for layer, comes, goes in swaps:
        cold = 0.0 if goes == ABSENT else usage[layer, goes]
        assert slot_of[layer, comes] == ABSENT and usage[layer, comes] >= max(LEAST_USAGE, cold + gain)
        assert goes == ABSENT or slot_of[layer, goes] != ABSENT
    gains = [usage[layer, comes] - usage[layer, goes] for layer, comes, goes in swaps if goes != ABSENT]
    assert gains == sorted(gains, reverse=True)
