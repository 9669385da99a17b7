"""The board of expert jobs: every piece of both phases is taken once, and nobody passes a wait too early."""

import numpy as np
import pytest

from strata.cpu_pool.atomics import add_at, load_at
from strata.cpu_pool.expert_board import board_bytes, clear_board, expert_word, group_word, own_pieces, take_piece, wait_for
from strata.cpu_pool.fork import fork
from strata.cpu_pool.lane_memory import address_of
from strata.cpu_pool.pages import first_line
from strata.cpu_pool.team import Team
from strata.numerics.cpu import jit, kernel

EXPERTS, GROUPS = 3, 5


@jit
def sit(begin, end, arguments):
    board, n_seats, n_first, n_second, taken, seen = arguments
    ready = expert_word(board, n_seats, EXPERTS - 1)
    for seat in range(begin, end):
        piece, helped = take_piece(board, 0, seat, n_seats, n_first, 0)
        while piece >= 0:
            add_at(taken + 8 * piece, 1)
            add_at(ready, 1)
            piece, helped = take_piece(board, 0, seat, n_seats, n_first, helped)
        piece, helped = take_piece(board, 1, seat, n_seats, n_second, 0)
        while piece >= 0:
            wait_for(ready, n_first)
            add_at(seen + 8 * piece, load_at(ready))
            piece, helped = take_piece(board, 1, seat, n_seats, n_second, helped)


@kernel
def play(control, room, n_seats, n_first, n_second, taken, seen):
    board = first_line(room)
    clear_board(board, board_bytes(n_seats, EXPERTS, GROUPS))
    fork(control, sit, n_seats, 1, (board, n_seats, n_first, n_second, address_of(taken), address_of(seen)))


@kernel
def layout(n_seats):
    n_bytes = board_bytes(n_seats, EXPERTS, GROUPS)
    return expert_word(0, n_seats, 0), expert_word(0, n_seats, EXPERTS - 1), group_word(0, n_seats, EXPERTS, EXPERTS * GROUPS - 1), n_bytes


@kernel
def ranges(n_seats, n_pieces, out):
    for seat in range(n_seats):
        out[seat, 0], out[seat, 1] = own_pieces(seat, n_seats, n_pieces)


@pytest.mark.parametrize("n_threads", [1, 2, 4])
@pytest.mark.parametrize("pieces", [(1, 1), (3, 7), (140, 448), (0, 2)])
def test_each_piece_is_taken_once_and_the_second_phase_waits(n_threads, pieces):
    room = np.full(4096, 255, np.uint8)
    with Team(n_threads) as team:
        for _ in range(20):
            taken, seen = (np.zeros(n, np.int64) for n in pieces)
            play(team.control, room, n_threads + 1, *pieces, taken, seen)
            assert (taken == 1).all() and (seen == pieces[0]).all()


@pytest.mark.parametrize("n_seats", [1, 2, 33])
def test_words_lie_apart_and_within_the_board(n_seats):
    first_expert, last_expert, last_group, n_bytes = layout(n_seats)
    assert first_expert == 64 * n_seats and last_expert == first_expert + 64 * (EXPERTS - 1)
    assert last_expert + 64 <= last_group - 8 * (EXPERTS * GROUPS - 1) and last_group + 8 <= n_bytes and n_bytes % 64 == 0


@pytest.mark.parametrize(("n_seats", "n_pieces"), [(1, 5), (4, 3), (32, 140), (7, 0)])
def test_seats_share_all_pieces(n_seats, n_pieces):
    found = np.empty((n_seats, 2), np.int64)
    ranges(n_seats, n_pieces, found)
    assert found[0, 0] == 0 and found[-1, 1] == n_pieces and (found[1:, 0] == found[:-1, 1]).all()
    assert np.ptp(found[:, 1] - found[:, 0]) <= 1
