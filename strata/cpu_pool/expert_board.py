"""The board of a call of expert jobs: how a team's threads share two phases of pieces, and what the second one waits for.

Seats share each phase's pieces evenly, in order; a thread on a seat takes its own pieces one by one, then those that other seats have
left.  A claim is one atomic addition to a word that mostly this thread uses.  Addresses are int64; a board begins a cache line:

    a line for each seat      pieces claimed so far of its first and of its second phase
    a line for each expert    groups of its hidden rows that are coded
    a word for each group     pieces of it that are done

Does not know: what a piece computes.
"""

from strata.cpu_pool.atomics import add_at, load_at, pause, yield_core
from strata.cpu_pool.lane_memory import store_word
from strata.numerics.cpu import jit

LINE_BYTES, WORD_BYTES = 64, 8
PAUSES_PER_YIELD = 256


@jit
def board_bytes(n_seats, n_experts, n_groups):
    """Bytes of a board for experts of n_groups groups each, whole lines."""
    return (n_seats + n_experts) * LINE_BYTES + (n_experts * n_groups * WORD_BYTES + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES


@jit
def clear_board(board, n_bytes):
    """Have nothing claimed and nothing done."""
    for at in range(board, board + n_bytes, 4):
        store_word(at, 0)


@jit
def own_pieces(seat, n_seats, n_pieces):
    """Return a seat's pieces, (first, last + 1)."""
    return seat * n_pieces // n_seats, (seat + 1) * n_pieces // n_seats


@jit
def take_piece(board, phase, seat, n_seats, n_pieces, helped):
    """Claim a piece of phase 0 or 1: (piece, seats passed), from this seat's or, `helped` seats further on, from those behind it; -1: none is left."""
    while helped < n_seats:
        other = seat + helped if seat + helped < n_seats else seat + helped - n_seats
        begin, end = own_pieces(other, n_seats, n_pieces)
        word = board + other * LINE_BYTES + phase * WORD_BYTES
        if load_at(word) < end - begin:
            taken = add_at(word, 1)
            if taken < end - begin:
                return begin + taken, helped
        helped += 1
    return -1, helped


@jit
def expert_word(board, n_seats, expert):
    """Address of an expert's count of coded groups."""
    return board + (n_seats + expert) * LINE_BYTES


@jit
def group_word(board, n_seats, n_experts, group):
    """Address of a group's count of pieces, groups counted over all experts."""
    return board + (n_seats + n_experts) * LINE_BYTES + group * WORD_BYTES


@jit
def wait_for(word, value):
    """Return when the word at an address has reached a value."""
    while True:
        for _ in range(PAUSES_PER_YIELD):
            if load_at(word) >= value:
                return
            pause()
        yield_core()
