"""The residency table, the filling of a cache, the counts of routing and the profile made from them."""

import numpy as np
import pytest

from strata.experts.filling import first_pairs, slots_for
from strata.experts.residency import ABSENT, Residency
from strata.experts.usage import DECODED, READ, new_counts, ranked


def test_a_table_is_the_same_both_ways_round_and_counts_its_changes():
    table = Residency(2, 4, 3)
    table.settle(1, 2, 0)
    table.settle(0, 3, 2)
    assert (table.slot_of[1, 2], table.slot_of[0, 3], table.n_held) == (0, 2, 2)
    assert table.held.tolist() == [[1, 2], [ABSENT, ABSENT], [0, 3]]
    assert table.free_slots().tolist() == [1] and table.version[0] == 2
    assert (table.slot_of.dtype, table.held.dtype, table.version.dtype) == (np.int32,) * 3


def test_a_vacated_slot_is_nobodys_until_it_is_filled():
    table = Residency(1, 4, 1)
    table.settle(0, 1, 0)
    assert table.vacate(0, 1) == 0
    assert (table.slot_of[0, 1], table.n_held, table.free_slots().tolist()) == (ABSENT, 0, [])
    table.settle(0, 2, 0)
    assert table.held.tolist() == [[0, 2]]


def test_a_held_slot_or_a_resident_expert_cannot_be_settled_again():
    table = Residency(1, 4, 2)
    table.settle(0, 1, 0)
    for expert, slot in ((2, 0), (1, 1)):
        with pytest.raises(ValueError, match="held"):
            table.settle(0, expert, slot)
    with pytest.raises(ValueError, match="no slot"):
        table.vacate(0, 3)


@pytest.mark.parametrize(
    ("free", "reserve", "expected"), [(None, 0, 50), (1000, 0, 10), (1000, 150, 8), (999, 0, 9), (100, 100, 0), (90, 200, 0), (10**6, 0, 50)]
)
def test_auto_takes_what_is_free_less_the_reserve(free, reserve, expected):
    assert slots_for(free, reserve, 100, 50) == expected


def test_a_cache_is_filled_in_the_profiles_order_with_its_own_layers():
    pairs = np.array([[0, 5], [2, 1], [1, 7], [0, 2], [1, 1]], np.int32)
    assert first_pairs(pairs, {0, 1}, 3).tolist() == [[0, 5], [1, 7], [0, 2]]
    assert first_pairs(pairs, {2}, 3).tolist() == [[2, 1]]


def test_a_profile_ranks_what_was_routed_in_both_kinds_of_windows():
    counts = new_counts(2, 3)
    counts[DECODED, 1, 2], counts[READ, 1, 2], counts[READ, 0, 1], counts[DECODED, 0, 0], counts[DECODED, 1, 0] = 2, 3, 5, 1, 1
    pairs, shares = ranked(counts)
    assert pairs.tolist() == [[0, 1], [1, 2], [0, 0], [1, 0]]
    assert shares.tolist() == [5 / 12, 5 / 12, 1 / 12, 1 / 12]
