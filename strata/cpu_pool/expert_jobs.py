"""Jobs of the CPU pool: whole experts, from float32 rows to outputs, in one compiled call and one fork.

A call takes listed experts of one layer and their entries.  A piece of the first phase computes the same few rows of gate and up,
and silu(gate) * up of them; whoever ends a group of 32 of these codes it.  A piece of the second phase computes rows of down as soon
as its expert's groups are coded: there is no barrier, and threads part at the end only (`expert_board`).  Bits are those of the
products and of `host.experts.activate` one by one: nothing here adds.
Does not know: where experts lie, routers, threads.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.atomics import add_at, load_at
from strata.cpu_pool.expert_board import board_bytes, clear_board, expert_word, group_word, take_piece, wait_for
from strata.cpu_pool.fork import fork
from strata.cpu_pool.job import N_WORKERS
from strata.cpu_pool.lane_memory import address_of, keep_alive, load_float, load_word, prefetch, store_float
from strata.cpu_pool.pages import LINE_BYTES, PAGE_BYTES, VECTOR_BYTES, clear_lane, encode_group, encode_pages, first_line, row_bytes_of
from strata.cpu_pool.pages import GROUPS as PAGE_GROUPS
from strata.cpu_pool.row_kernels import vector_rows
from strata.formats.contract import GROUP
from strata.formats.table import FORMATS
from strata.numerics.cpu import jit, kernel, mul
from strata.numerics.on_cpu import silu

PIECE_BYTES = 98304
"""Weights of a piece, at most: some microseconds of one thread's reading, in order."""
PIECES_PER_THREAD = 6
"""Fewer pieces of a phase for each thread are too few to end together: pieces are smaller then."""
PIECE_PRODUCTS = 131072
LEAST_ROWS = 8
GATE, UP, DOWN = range(3)


@jit
def _gate_rows(row_bytes, n_rows, n_seats):
    """Rows of gate and of up of a piece, row_bytes of both together, of n_rows in all: a power of two that divides a group."""
    rows = GROUP
    while rows > LEAST_ROWS and (rows * row_bytes > PIECE_BYTES or n_rows < PIECES_PER_THREAD * n_seats * rows):
        rows //= 2
    return rows


@jit
def _down_rows(row_bytes, n_rows, n_seats, n_hidden, n_experts, n_entries):
    """Rows of down of a piece, of n_rows in all: a multiple of LEAST_ROWS."""
    by_bytes, by_products = PIECE_BYTES // row_bytes, PIECE_PRODUCTS * n_experts // (n_hidden * n_entries)
    fewer, by_threads = by_bytes if by_bytes < by_products else by_products, n_rows // (PIECES_PER_THREAD * n_seats)
    fewer = fewer if fewer < by_threads else by_threads
    return fewer // LEAST_ROWS * LEAST_ROWS if fewer > LEAST_ROWS else LEAST_ROWS


@jit
def _int(at):
    """An int32 that is not negative, at an address."""
    return np.int64(load_word(at))


@jit
def _activate(begin, end, first, last, width, gates, ups):
    """gate = silu(gate) * up in columns begin .. end - 1 of rows first .. last - 1; float32 at addresses."""
    for entry in range(first, last):
        for i in range(begin, end):
            at = 4 * (entry * width + i)
            store_float(gates + at, mul(silu(load_float(gates + at)), load_float(ups + at)))


@jit
def _code(group, first, last, n_groups, gates, hidden, spare):
    """Code a group of rows first .. last - 1 into their pages; the last one also clears what follows it."""
    row_bytes = row_bytes_of(n_groups)
    for entry in range(first, last):
        page = hidden + entry * row_bytes + group // PAGE_GROUPS * PAGE_BYTES
        encode_group(gates + 4 * GROUP * (entry * n_groups + group), page, group % PAGE_GROUPS, spare)
        if group == n_groups - 1:
            for lane in range(group % PAGE_GROUPS + 1, PAGE_GROUPS):
                clear_lane(page, lane)


def _row_bytes(type_id: int, n_groups: int) -> int:
    form = FORMATS[type_id]
    return n_groups * GROUP // form.block_weights * form.block_bytes


@kernel
def room_bytes(n_seats, n_experts, n_rows, n_entries, n_groups_in, n_groups_hidden):
    """Bytes of scratch that a call needs."""
    pages = n_rows * row_bytes_of(n_groups_in) + n_entries * row_bytes_of(n_groups_hidden)
    return 4 * LINE_BYTES + board_bytes(n_seats, n_experts, n_groups_hidden) + pages + 2 * n_entries * n_groups_hidden * GROUP * 4


@cache
def expert_jobs(formats: tuple[int, int, int], n_groups_in: int, n_groups_hidden: int, instructions: str):
    """Return the kernel for experts whose gate, up and down have these formats and rows of so many groups, on a set with byte products.

    kernel(control, addresses, experts, starts, rows, lines, values, spans, out, pages, room): addresses int64 [E, 3], where an expert's
    gate, up and down lie; experts int32 [n]; starts int32 [n + 1] from 0; rows int32 [entries]; lines int32 0, 1, 2, ... [entries or
    more]; values float32 [rows, 32 n_groups_in] with spans int32 [rows or more, all 32]; out float32 [entries, H]; scratch: pages, a
    buffer for the rows, and room uint8 [room_bytes].
    """
    (gate_rows, gate_scratch), (up_rows, up_scratch) = (vector_rows(type_id, n_groups_in, instructions) for type_id in formats[:DOWN])
    down_rows, down_scratch = vector_rows(formats[DOWN], n_groups_hidden, instructions)
    gate_bytes, up_bytes = (_row_bytes(type_id, n_groups_in) for type_id in formats[:DOWN])
    down_bytes, width = _row_bytes(formats[DOWN], n_groups_hidden), n_groups_hidden * GROUP

    @jit
    def of_expert(i, job):
        """(addresses of its three matrices, first entry, last + 1) of the i-th listed expert."""
        at, first = job[0] + 24 * _int(job[1] + 4 * i), job[2] + 4 * i
        return at, _int(first), _int(first + 4)

    @jit
    def gate_piece(piece, job, seats, scratch, spare):
        _, _, _, rows, _, _, pages, gates, ups, hidden, board = job
        n_seats, n, of_gate, n_gate, _, _ = seats
        per_expert = width // of_gate
        i, begin = piece // per_expert, piece % per_expert * of_gate
        at, first, last = of_expert(i, job)
        gate, up, entries = load_at(at), load_at(at + 8), (first, last, rows)
        end = begin + of_gate
        gate_rows(begin, end, (gate, gate + width * gate_bytes), entries, (pages, n_groups_in), (gates, width), scratch)
        up_rows(begin, end, (up, up + width * up_bytes), entries, (pages, n_groups_in), (ups, width), scratch)
        _activate(begin, end, first, last, width, gates, ups)
        group = begin // GROUP
        if add_at(group_word(board, n_seats, n, i * n_groups_hidden + group), 1) + 1 == GROUP // of_gate:
            _code(group, first, last, n_groups_hidden, gates, hidden, spare)
            add_at(expert_word(board, n_seats, i), 1)

    @jit
    def down_piece(piece, job, seats, scratch):
        _, _, _, _, lines, (out, n_out), _, _, _, hidden, board = job
        n_seats, _, _, _, of_down, _ = seats
        per_expert = (n_out + of_down - 1) // of_down
        i, begin = piece // per_expert, piece % per_expert * of_down
        at, first, last = of_expert(i, job)
        down, end = load_at(at + 16), begin + of_down if begin + of_down < n_out else n_out
        coded = expert_word(board, n_seats, i)
        if load_at(coded) < n_groups_hidden:
            for line in range(down + begin * down_bytes, down + end * down_bytes, LINE_BYTES):
                prefetch(line)
            wait_for(coded, n_groups_hidden)
        entries = first, last, lines
        down_rows(begin, end, (down, down + n_out * down_bytes), entries, (hidden, n_groups_hidden), (out, n_out), scratch)

    @jit
    def sit(begin, end, arguments):
        """Threads on seats begin .. end - 1, one after the other."""
        job, seats = arguments
        n_seats, _, _, n_gate, _, n_down = seats
        own = np.empty(VECTOR_BYTES + gate_scratch(n_groups_in) + up_scratch(n_groups_in) + down_scratch(n_groups_hidden), np.uint8)
        spare = address_of(own)
        scratch = spare + VECTOR_BYTES
        for seat in range(begin, end):
            piece, helped = take_piece(job[10], 0, seat, n_seats, n_gate, 0)
            while piece >= 0:
                gate_piece(piece, job, seats, scratch, spare)
                piece, helped = take_piece(job[10], 0, seat, n_seats, n_gate, helped)
            piece, helped = take_piece(job[10], 1, seat, n_seats, n_down, 0)
            while piece >= 0:
                down_piece(piece, job, seats, scratch)
                piece, helped = take_piece(job[10], 1, seat, n_seats, n_down, helped)
        keep_alive(own)

    @kernel
    def run(control, addresses, experts, starts, rows, lines, values, spans, out, pages, room):
        encode_pages(control, values, spans, pages)
        n, n_entries, n_out, n_seats = experts.size, rows.size, out.shape[1], control[N_WORKERS] + 1
        of_gate = _gate_rows(gate_bytes + up_bytes, n * width, n_seats)
        of_down = _down_rows(down_bytes, n * n_out, n_seats, width, n, n_entries)
        n_gate, n_down = n * (width // of_gate), n * ((n_out + of_down - 1) // of_down)
        board = first_line(room)
        n_bytes = board_bytes(n_seats, n, n_groups_hidden)
        clear_board(board, n_bytes)
        hidden = board + n_bytes
        gates = hidden + n_entries * row_bytes_of(n_groups_hidden)
        ups = gates + 4 * n_entries * width
        lists = address_of(addresses), address_of(experts), address_of(starts), address_of(rows), address_of(lines)
        job = (*lists, (address_of(out), n_out), first_line(pages), gates, ups, hidden, board)
        fork(control, sit, n_seats, 1, (job, (n_seats, n, of_gate, n_gate, of_down, n_down)))

    return run
