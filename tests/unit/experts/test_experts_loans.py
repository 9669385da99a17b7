"""Prompt loans as pure functions: rows, slots, who keeps buffers of its own."""

import pytest

from strata.batch.settings import WINDOW_ROWS
from strata.experts.loans import MOST_AUTO_CHUNK, SMALL_WINDOW, Room, chunk_of, is_chunk, loan_rows, must_own, slots_to_lend
from strata.experts.residency import ABSENT, Residency

ROW, SLOT = 100, 1000


def room(left, slots):
    return Room(left, slots * SLOT, ROW)


def test_windows_as_wide_as_a_decode_window_need_no_chunk_buffers():
    assert SMALL_WINDOW == WINDOW_ROWS
    assert [is_chunk(True, 8), is_chunk(True, 9), is_chunk(False, 9)] == [False, True, False]


@pytest.mark.parametrize(("tokens", "prefill", "rows"), [(9, 2048, 256), (256, 2048, 256), (257, 2048, 512), (2000, 2048, 2048), (300, 400, 400), (12, 12, 12)])
def test_a_chunk_is_the_prompt_rounded_up_and_no_more_than_asked_for(tokens, prefill, rows):
    assert loan_rows(tokens, prefill) == rows


@pytest.mark.parametrize(("n_bytes", "slots"), [(1, 1), (1000, 1), (1001, 2), (0, 0)])
def test_slots_are_lent_whole(n_bytes, slots):
    assert slots_to_lend(n_bytes, SLOT) == slots


@pytest.mark.parametrize(
    ("borrows", "split_own", "own", "budgets", "must"),
    [
        (False, "", [5], [100], True),
        (True, "", [5, 5], [100, 100], False),
        (True, "1", [50, 50], [100, 100], True),
        (True, "1", [50], [100], False),
        (True, "auto", [12, 12], [100, 100], True),
        (True, "auto", [12, 13], [100, 100], False),
        (True, "auto", [50, 12], [None, 100], True),
    ],
)
def test_who_must_have_buffers_of_its_own(borrows, split_own, own, budgets, must):
    assert must_own(borrows, split_own, own, budgets) == must


@pytest.mark.parametrize(
    ("rooms", "prefill", "is_auto", "found"),
    [
        ([room(None, 5)], 2048, True, (2048, (True,))),
        ([room(2048 * ROW, 5)], 2048, True, (2048, (True,))),
        ([room(2048 * ROW - 1, 500)], 2048, False, (2048, (False,))),
        ([room(0, 500)], 2048, True, (5000, (False,))),
        ([room(0, 5000)], 2048, True, (MOST_AUTO_CHUNK, (False,))),
        ([room(0, 5)], 2048, False, (50, (False,))),
        ([room(0, 500), room(None, 5)], 2048, True, (5000, (False, True))),
        ([room(0, 500), room(3000 * ROW, 5)], 2048, True, (3000, (False, True))),
        ([room(0, 500), room(7, 300)], 2048, True, (3000, (False, False))),
    ],
)
def test_the_chunk_is_what_every_device_has_room_for(rooms, prefill, is_auto, found):
    assert chunk_of(rooms, prefill, is_auto) == found


def test_a_lent_slot_is_nobodys_until_it_is_given_back():
    table = Residency(1, 4, 3)
    table.settle(0, 2, 1)
    assert table.lend(1) == (0, 2) and table.lend(2) == (ABSENT, ABSENT)
    assert table.slot_of[0, 2] == ABSENT and table.free_slots().tolist() == [0] and table.n_held == 0
    with pytest.raises(ValueError, match="slot 2 is kept"):
        table.lend(2)
    table.release(2)
    table.settle(0, 2, 1)
    assert table.free_slots().tolist() == [0, 2] and table.slot_of[0, 2] == 1
