"""Products of many activation rows with short float weight rows (256 to 512 columns): 256 lanes, tiles of 16 rows x 32 outputs.

The order of host/float_products.py, a thread's part as in float_tile_parts.py.  A block keeps the weights of its 32 outputs, widened,
in shared memory and takes one tile of rows after the other, the next one's activations on their way meanwhile.  A lane has one or
two elements here, so the tree counts as much as the products: per thread and tile of 320 columns 640 products, 512 additions in the thread and 150
more instructions for the levels 16 to 1; about 3,000 cycles a tile, of which the float units need 1,280 for products alone.

Shapes as in float_rows.py.  Does not know: what the product is for.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.addresses import global_address, shared_address
from strata.cuda.float_tile_parts import (
    MEETING_BYTES, N_SUMS, OUTPUTS, PARKED_BYTES, ROWS, SIDE, STEP, THREADS, WEIGHT_BYTES, WIDEN_FOUR, X_BYTES, add_parked,
    copied_row, copy_places, first_step, group_of, meet, next_step, park, read_places, residue_of, row_copier, store_tile,
    store_widened, widened_output, widened_place,
)
from strata.cuda.seam import Target, add, copies, jit, kernel, launch_dependents, wait_for_dependency
from strata.numerics.orders import WIDE

LEAST_COLUMNS, MOST_COLUMNS = WIDE, 2 * WIDE
BLOCKS = 640
"""Blocks wanted of a launch: a little less than five for each multiprocessor of a large card, one at a time on each."""
GROUP_STEPS = WIDE // STEP


def splits_of(n_out: int, n_rows: int) -> int:
    """Return how many blocks share the rows of 32 outputs."""
    n_tiles = -(-n_rows // ROWS)
    return max(1, min(n_tiles, BLOCKS // -(-n_out // OUTPUTS)))


def shared_bytes(n_in: int) -> int:
    """Return the shared memory of a block: weights, two tiles of rows, parked sums, the meeting of the warps."""
    return -(-n_in // STEP) * (WEIGHT_BYTES + 2 * X_BYTES) + PARKED_BYTES + MEETING_BYTES


@jit
def _two_lane_groups(x_at, w_at, first, n_in, residue, places, x, w, a, b):
    """The lanes of two turns: each has an element, and a second one where the row is long enough."""
    g, h = group_of(first), group_of(np.int32(first + 1))
    first_step(x_at + X_BYTES * g, w_at + WEIGHT_BYTES * g, places, x, w, a)
    first_step(x_at + X_BYTES * h, w_at + WEIGHT_BYTES * h, places, x, w, b)
    left = np.int32(n_in - WIDE - residue)
    if left > STEP * g:
        next_step(x_at + X_BYTES * (g + GROUP_STEPS), w_at + WEIGHT_BYTES * (g + GROUP_STEPS), places, x, w, a)
    if left > STEP * h:
        next_step(x_at + X_BYTES * (h + GROUP_STEPS), w_at + WEIGHT_BYTES * (h + GROUP_STEPS), places, x, w, b)


@jit
def _lanes_of_thread(x_at, w_at, parked, n_in, residue, places, x, w, a, b, c):
    """All lane groups of a thread's residue and the tree's levels 128, 64 and 32; the sums are left in `a`."""
    for part in range(2):
        _two_lane_groups(x_at, w_at, np.int32(4 * part), n_in, residue, places, x, w, a, b)
        for v in range(N_SUMS):
            c[v] = add(a[v], b[v])
        _two_lane_groups(x_at, w_at, np.int32(4 * part + 2), n_in, residue, places, x, w, a, b)
        for v in range(N_SUMS):
            a[v] = add(c[v], add(a[v], b[v]))
        if part == 0:
            park(parked, a)
    add_parked(parked, a)


@cache
def short_tiles(type_name: str, target: Target):
    """Return the kernel (weights, n_in, n_out, n_rows, x, out); grid (n_out / OUTPUTS rounded up, splits_of(...))."""
    widen_four, value_bytes = WIDEN_FOUR[type_name]
    copy_rows = row_copier(1, X_BYTES, STEP, target)
    done = copies(target, 0)
    commit, wait_all = done.commit, done.wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @jit
    def fetch_weights(to, weights, at, n_in, first):
        for begin in range(0, n_in, STEP):
            if begin + first < n_in:
                w0, w1, w2, w3 = widen_four(weights, at + begin * value_bytes)
                store_widened(to + (WEIGHT_BYTES // STEP) * begin, w0, w1, w2, w3)

    @jit
    def fetch_rows(to, places, x_from, row, n_in):
        source = x_from + 4 * np.int64(row) * n_in
        for begin in range(0, n_in, STEP):
            copy_rows(to + (X_BYTES // STEP) * begin, places, source, np.int32(begin), n_in)

    @kernel(THREADS, 1)
    def run(weights, n_in, n_out, n_rows, x, out):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        thread = np.int32(cuda.threadIdx.x)
        n_steps, last_row = np.int32((n_in + STEP - 1) // STEP), np.int32(n_rows - 1)
        x_at, parked = shared + WEIGHT_BYTES * n_steps, shared + (n_steps * (WEIGHT_BYTES + 2 * X_BYTES) + 4 * thread)
        meeting = shared + (n_steps * (WEIGHT_BYTES + 2 * X_BYTES) + PARKED_BYTES)
        first_output, own = np.int32(np.int32(cuda.blockIdx.x) * OUTPUTS), 4 * (thread & 7)
        own_output = min(np.int32(first_output + widened_output(thread)), np.int32(n_out - 1))
        fetch_weights(shared + widened_place(thread), weights, (np.int64(own_output) * n_in + own) * value_bytes, n_in, own)
        wait_before()
        x_from, to_rows, own_row = global_address(x), copy_places(thread), copied_row(thread)
        places, residue = read_places(thread), residue_of(thread)
        a, b, c = cuda.local.array(N_SUMS, np.float32), cuda.local.array(N_SUMS, np.float32), cuda.local.array(N_SUMS, np.float32)
        x_values, w_values = cuda.local.array(SIDE, np.float32), cuda.local.array(SIDE, np.float32)
        apart = np.int32(np.int32(cuda.gridDim.y) * ROWS)
        first_row = np.int32(np.int32(cuda.blockIdx.y) * ROWS)
        slot, other = x_at + 0, x_at + X_BYTES * n_steps
        fetch_rows(slot, to_rows, x_from, min(np.int32(first_row + own_row), last_row), n_in)
        commit()
        while first_row < n_rows:
            wait_all()
            cuda.syncthreads()
            coming = np.int32(first_row + apart)
            if coming < n_rows:
                fetch_rows(other, to_rows, x_from, min(np.int32(coming + own_row), last_row), n_in)
            commit()
            _lanes_of_thread(slot, shared + 0, parked, n_in, residue, places, x_values, w_values, a, b, c)
            meet(meeting, thread, a)
            cuda.syncthreads()
            store_tile(meeting, thread, first_row, first_output, n_rows, n_out, out)
            slot, other, first_row = other, slot, coming
        go_on()

    return run
