"""Products of three to eight activation rows with float weights: 256 lanes, four or eight outputs a block.

The order of host/float_products.py: element i belongs to lane i mod 256, a lane is a chain in ascending i, the halving tree
sums the lanes.  What bounds these products is reading the activations, which no block's shared memory holds: a block of one *side* has
four outputs and reads every row once; of two sides it has eight outputs and reads half of the rows, where their weights fit.
Its threads are four parts of 64: thread t of a part holds lanes 4 t .. 4 t + 3 of four outputs for the part's one or two rows.  Weight rows are copied to shared memory before the activations are known; activations are
fetched some steps ahead of their use.  The tree: lanes 128 apart meet through shared memory, where each warp hands half of its sums over;
lanes 64 .. 4 apart by exchanges, at each of which a thread goes on with half of its sums; lanes 2 and 1 apart lie then in different threads.

Shapes: weights uint8 (raw bytes of [n_out, n_in], rows of whole 16 bytes); x float32 [rows * n_in]; out float32 [rows * n_out].
Does not know: what the products are for.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.floats.float_rows import WIDEN_FOUR
from strata.cuda.machine.addresses import (
    copy_series, global_address, shared_address, shared_float, store_global_float, store_shared_float,
)
from strata.cuda.machine.seam import (
    Target, add, copies, exchange_float, fma, jit, kernel, launch_dependents, load_four_floats, wait_for_dependency,
)
from strata.cuda.machine.warps import meeting
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
OUTPUTS, PARTS = 4, 4
THREADS_PER_PART = 64
THREADS = PARTS * THREADS_PER_PART
LEAST_ROWS, MOST_ROWS = 3, 8
TWO_SIDES = True
"""Whether more than PARTS rows are shared out among two blocks of twice as many outputs, where their weights fit."""
COPIES, COPY_STEP = 8, 16 * THREADS
"""Copies of a thread that are written out, and bytes between two of them."""
STEPS = 4
"""Elements of a lane whose activations are fetched together, while those of the STEPS before are computed."""


def row_bytes(type_name: str, n_in: int) -> int:
    """Return the bytes of a weight row."""
    return n_in * WIDEN_FOUR[type_name][1]


def rows_of_side(n_rows: int, sides: int) -> int:
    """Return how many rows a block has, at most."""
    return -(-n_rows // sides)


def rows_per_part(n_rows: int, sides: int) -> int:
    """Return how many rows a part of a block has."""
    return -(-rows_of_side(n_rows, sides) * sides // PARTS)


def shared_bytes(type_name: str, n_in: int, n_rows: int, sides: int) -> int:
    """Return the dynamic shared memory of a block: its weight rows, and later half of all threads' sums."""
    return max(sides * OUTPUTS * row_bytes(type_name, n_in), THREADS * rows_per_part(n_rows, sides) * OUTPUTS * 2 * 4)


def takes(type_name: str, n_in: int, n_rows: int, room: int) -> bool:
    """Whether these blocks take a product; `room`: the shared memory that a block can have."""
    return LEAST_ROWS <= n_rows <= MOST_ROWS and row_bytes(type_name, n_in) % 16 == 0 and shared_bytes(type_name, n_in, n_rows, 1) <= room


def sides_of(type_name: str, n_in: int, n_rows: int, room: int) -> int:
    """Return the sides of a product that these blocks take."""
    return 2 if TWO_SIDES and n_rows > PARTS and shared_bytes(type_name, n_in, n_rows, 2) <= room else 1


def blocks_of(n_out: int, sides: int) -> int:
    """Return the blocks of a matrix."""
    return -(-n_out // (sides * OUTPUTS)) * sides


def _one_step(type_name: str, u: int, n_rows: int, follow):
    """Build step u of a batch: four elements of the thread's lanes, for all outputs and rows; then what follows."""
    widen_four, value_bytes = WIDEN_FOUR[type_name]

    @jit
    def step(at, pitch, held, lanes):
        for o in range(OUTPUTS):
            w0, w1, w2, w3 = widen_four(at + o * pitch + u * WIDE * value_bytes)
            for r in range(n_rows):
                x, v = 4 * (u * n_rows + r), 4 * (r * OUTPUTS + o)
                lanes[v], lanes[v + 1] = fma(w0, held[x], lanes[v]), fma(w1, held[x + 1], lanes[v + 1])
                lanes[v + 2], lanes[v + 3] = fma(w2, held[x + 2], lanes[v + 2]), fma(w3, held[x + 3], lanes[v + 3])
        follow(at, pitch, held, lanes)

    return step


@jit
def _nothing(at, pitch, held, lanes):
    return


def chains(type_name: str, n_rows: int, steps: int):
    """Build `fetch(x, places, i, to)`, `advance(at, pitch, x, places, n_in, thread, held, ahead, lanes)`, and the elements of a batch.

    `advance` makes a thread's chains over all its elements; the first batch's activations are fetched before, where rows are that long.
    """
    value_bytes = WIDEN_FOUR[type_name][1]
    batch = steps * WIDE
    one = _one_step(type_name, 0, n_rows, _nothing)
    compute = _nothing
    for u in reversed(range(steps)):
        compute = _one_step(type_name, u, n_rows, compute)

    @jit
    def fetch(x, places, i, to):
        for u in range(steps):
            for r in range(n_rows):
                v = 4 * (u * n_rows + r)
                to[v], to[v + 1], to[v + 2], to[v + 3] = load_four_floats(x, 4 * (places[r] + i + u * WIDE))

    @jit
    def advance(at, pitch, x, places, n_in, thread, held, ahead, lanes):
        """Two batches a turn, so that what was fetched ahead is computed where it lies."""
        n_batches, own, step = np.int32(n_in // batch), 4 * thread, batch * value_bytes
        place = at + own * value_bytes
        for b in range(0, n_batches - 1, 2):
            fetch(x, places, own + np.int32(b + 1) * batch, ahead)
            compute(place, pitch, held, lanes)
            if b + 2 < n_batches:
                fetch(x, places, own + np.int32(b + 2) * batch, held)
            compute(place + step, pitch, ahead, lanes)
            place = place + 2 * step
        if n_batches & 1:
            compute(place, pitch, held, lanes)
        for i in range(n_batches * batch + own, n_in, WIDE):
            for r in range(n_rows):
                held[4 * r], held[4 * r + 1], held[4 * r + 2], held[4 * r + 3] = load_four_floats(x, 4 * (places[r] + i))
            one(at + i * value_bytes, pitch, held, lanes)

    return fetch, advance, batch


def tree(n_rows: int):
    """Build `total(meeting, lanes, kept, warp, thread)`: the sum of one output and row, number thread // (4 * per) of the warp's half.

    `meeting`: address of shared memory for half of all threads' sums.
    The first warp of a part goes on with the first half of (row, output), the second with the second.
    """
    n_half = 2 * n_rows * OUTPUTS
    meet, per = meeting(n_half), 32 // n_half
    two_apart, one_apart = np.int32(2 * per), np.int32(per)

    @jit
    def total(meeting, lanes, kept, warp, thread):
        second, half_bytes = (warp & 1) != 0, 128 * n_half
        own, other = meeting + (half_bytes * warp + 4 * thread), meeting + (half_bytes * (warp ^ 1) + 4 * thread)
        for v in range(n_half):
            store_shared_float(own + 128 * v, lanes[v] if second else lanes[n_half + v])
        cuda.syncthreads()
        for v in range(n_half):
            kept[v] = add(lanes[n_half + v] if second else lanes[v], shared_float(other + 128 * v))
        value = meet(kept, thread)
        value = add(value, exchange_float(value, two_apart))
        return add(value, exchange_float(value, one_apart))

    return total, 4 * per, n_half


def _rows_sender(target: Target):
    """Build `send(shared, source, n_bytes)`: a block's weight rows, which lie one behind the other, on their way, a group of copies."""
    copy, commit = copy_series(16, COPIES, COPY_STEP, COPY_STEP, COPY_STEP, target, once=True), copies(target, 0).commit

    @jit
    def send(shared, source, n_bytes):
        part = 16 * np.int32(cuda.threadIdx.x)
        to, source, left = shared + part, source + part, np.int32(n_bytes - part)
        while left > 0:
            copy(to, source, left)
            to, source, left = to + COPIES * COPY_STEP, source + COPIES * COPY_STEP, np.int32(left - COPIES * COPY_STEP)
        commit()

    return send


def wide_block(type_name: str, n_rows: int, steps: int, sides: int, target: Target):
    """Build `compute(block, weights, n_in, n_own, x, results)`: one block of a matrix for exactly n_rows rows, by addresses.

    `steps`: elements of a lane whose activations are fetched together.  With two sides neighbouring blocks share their outputs.
    """
    own_rows, side_rows, n_weights = rows_per_part(n_rows, sides), rows_of_side(n_rows, sides), sides * OUTPUTS
    fetch, advance, batch = chains(type_name, own_rows, steps)
    total, per_sum, n_half = tree(own_rows)
    n_lanes, n_held, value_bytes = 2 * n_half, 4 * steps * own_rows, WIDEN_FOUR[type_name][1]
    wait_before, go_on, wait_all = wait_for_dependency(target), launch_dependents(target), copies(target, 0).wait
    send = _rows_sender(target)

    @jit
    def compute(block, weights, n_in, n_own, x, results):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        lanes, kept = cuda.local.array(n_lanes, np.float32), cuda.local.array(n_half, np.float32)
        held, ahead = cuda.local.array(n_held, np.float32), cuda.local.array(n_held, np.float32)
        places = cuda.local.array(own_rows, np.int64)
        thread, part = np.int32(cuda.threadIdx.x) & 63, np.int32(cuda.threadIdx.x) >> 6
        in_warp, warp = np.int32(cuda.threadIdx.x) & 31, np.int32(cuda.threadIdx.x) >> 5
        first, pitch = np.int32(block // sides * n_weights), np.int32(n_in * value_bytes)
        first_row, part_output = np.int32(block % sides * side_rows), np.int32(part % sides * OUTPUTS)
        part_row = np.int32(part // sides * own_rows)
        # Of outputs that are not there nothing comes.
        send(shared, weights + np.int64(first) * pitch, np.int32(min(np.int32(n_weights), np.int32(n_own - first)) * pitch))
        go_on()
        for r in range(own_rows):
            places[r] = np.int64(min(np.int32(first_row + part_row + r), np.int32(n_rows - 1))) * n_in
        for v in range(n_lanes):
            lanes[v] = ZERO
        wait_before()
        if n_in >= batch:
            fetch(x, places, 4 * thread, held)
        wait_all()
        cuda.syncthreads()
        advance(shared + part_output * pitch, pitch, x, places, n_in, thread, held, ahead, lanes)
        cuda.syncthreads()
        value = total(shared + 0, lanes, kept, warp, in_warp)
        which = np.int32((warp & 1) * (n_half // 4) + in_warp // per_sum)
        own_row, n = np.int32(part_row + which // OUTPUTS), np.int32(first + part_output + which % OUTPUTS)
        row = np.int32(first_row + own_row)
        if in_warp % per_sum == 0 and own_row < side_rows and row < n_rows and n < n_own:
            store_global_float(results + 4 * (np.int64(row) * n_own + n), value)

    return compute


@cache
def wide_rows(type_name: str, n_rows: int, sides: int, target: Target):
    """Return the kernel for exactly n_rows (LEAST_ROWS .. MOST_ROWS) rows; grid: the blocks of both matrices, THREADS threads.

    kernel(weights, other, n_in, n_out, n_other, x, out, other_out): two matrices of the same input, the second's blocks behind the
    first's; n_other may be 0.
    """
    compute, n_outputs = wide_block(type_name, n_rows, STEPS, sides, target), sides * OUTPUTS

    @kernel(THREADS, 1)
    def run(weights, other, n_in, n_out, n_other, x, out, other_out):
        block, n_first = np.int32(cuda.blockIdx.x), np.int32((n_out + n_outputs - 1) // n_outputs * sides)
        is_other = block >= n_first
        place = global_address(other) if is_other else global_address(weights)
        results = global_address(other_out) if is_other else global_address(out)
        compute(np.int32(block - n_first) if is_other else block, place, n_in, n_other if is_other else n_out, x, results)

    return run
