"""Memory for what a card hands out: never given out again while any view of it lives, used again afterwards."""

import gc

import numpy as np

from strata.cuda.memory.host_rows import MOST_LOCKED, HostRows


class Card:
    """Hands out host memory and counts how often."""

    def __init__(self) -> None:
        self.n_made = 0

    def pinned(self, n: int, dtype) -> np.ndarray:
        self.n_made += 1
        return np.ndarray((n,), dtype, buffer=bytearray(n * np.dtype(dtype).itemsize))


def test_memory_that_nobody_holds_is_used_again():
    card = Card()
    rows = HostRows(card)
    for _ in range(5):
        rows.take(12)[:] = 1
    assert card.n_made == rows.n_arrays == 1


def test_memory_is_not_given_out_while_a_view_of_a_view_lives():
    card = Card()
    rows = HostRows(card)
    first = rows.take(12).reshape(3, 4)
    first[:] = 7
    row = first[1]
    del first
    gc.collect()
    other = rows.take(12)
    other[:] = 8
    assert row.tolist() == [7, 7, 7, 7] and card.n_made == 2
    del row
    again = rows.take(12)
    again[:] = 9
    assert card.n_made == 2 and other.tolist() == [8] * 12


def test_arrays_that_have_become_too_small_are_dropped():
    card = Card()
    rows = HostRows(card)
    held, _ = rows.take(4), rows.take(5)
    del _
    assert rows.take(100).size == 100 and rows.n_arrays == 2
    assert held.size == 4


def test_whoever_holds_everything_does_not_lock_all_memory():
    card = Card()
    rows = HostRows(card)
    held = [rows.take(3) for _ in range(MOST_LOCKED + 5)]
    for i, array in enumerate(held):
        array[:] = i
    assert card.n_made == MOST_LOCKED and [array[0] for array in held] == list(range(MOST_LOCKED + 5))
