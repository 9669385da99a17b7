"""Products of many activation rows with short float weight rows (256 to 512 columns): 256 lanes, tiles of 16 rows x 32 outputs.

The order of host/float_products.py, a thread's part as in float_short_stages.py.  A block keeps the weights of its 32 outputs, widened,
in shared memory and takes one tile of rows after the other, the next one's activations on their way meanwhile.  Its warps meet a second time,
and it is stored, while the next one is computed: one barrier a tile.  A lane has one or two elements here, so the tree counts as much as the products: per thread and tile of 320 columns 640 products, 448 additions in the thread and
150 more instructions for the levels 16 to 1.

The levels 128, 64 and 32 are one line of code without a branch, made for a number of columns.  Sums of three lane groups fit into registers,
of the tree's last two groups half of the outputs at a time.

Shapes as in float_rows.py.  Does not know: what the product is for.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.floats.float_short_stages import (
    MEETING_BYTES, OUTPUTS, ROWS, STEP, WEIGHT_BYTES, X_BYTES, copied_row, copy_places, meet, read_places, residue_of, row_copier, store_tile,
    store_widened, widened_output, widened_place,
)
from strata.cuda.floats.float_tile_steps import N_SUMS, SIDE, THREADS, WIDEN_FOUR, half_step, whole_step
from strata.cuda.machine.addresses import copier, global_address, shared_address
from strata.cuda.machine.seam import Target, add, copies, jit, kernel, launch_dependents, wait_for_dependency
from strata.numerics.orders import WIDE

LEAST_COLUMNS, MOST_COLUMNS = WIDE, 2 * WIDE
BLOCKS = 640
"""Blocks wanted of a launch: a little less than five for each multiprocessor of a large card, one at a time on each."""
GROUP_STEPS = WIDE // STEP
HALF = N_SUMS // 2


def splits_of(n_out: int, n_rows: int) -> int:
    """Return how many blocks share the rows of 32 outputs."""
    n_tiles = -(-n_rows // ROWS)
    return max(1, min(n_tiles, BLOCKS // -(-n_out // OUTPUTS)))


def shared_bytes(n_in: int) -> int:
    """Return the shared memory of a block: weights, two tiles of rows, the meetings of the warps of two tiles."""
    return -(-n_in // STEP) * (WEIGHT_BYTES + 2 * X_BYTES) + 2 * MEETING_BYTES


def _step_copier(n_in: int, target: Target):
    """Build `copy(to, places, source, element, n_in)`, as row_copier does, for one step; where rows end with a step it never looks at their end."""
    if n_in % STEP:
        return row_copier(1, X_BYTES, STEP, target)
    copy_value = copier(4, 0, 0, target)

    @jit
    def copy(to, places, source, element, n_in):
        low, high, own = places
        copy_value(to + low, source + 4 * (element + own))
        copy_value(to + high, source + 4 * (element + own + 16))

    return copy


def _lane(n_in: int, group: int, step):
    """Build `lane(x_at, w_at, residue, places, x, w, sums)`: a lane's one or two elements by `step(fresh)`."""
    first, following = step(True), step(False)
    left = n_in - WIDE - STEP * group
    x_first, w_first = X_BYTES * group, WEIGHT_BYTES * group
    x_second, w_second = X_BYTES * (group + GROUP_STEPS), WEIGHT_BYTES * (group + GROUP_STEPS)

    @jit
    def lane(x_at, w_at, residue, places, x, w, sums):
        first(x_at + x_first, w_at + w_first, places, x, w, sums)
        if left >= STEP:
            following(x_at + x_second, w_at + w_second, places, x, w, sums)
        elif left > 0 and residue < left:
            following(x_at + x_second, w_at + w_second, places, x, w, sums)

    return lane


def _last_lanes(n_in: int, upper: bool):
    """Build `add_lanes(x_at, w_at, residue, places, x, w, a, b, c)` for half of the outputs: c + (a + (group 3 + group 7)), left in `a`."""
    outputs = HALF if upper else 0
    third = _lane(n_in, 3, lambda fresh: half_step(fresh, upper, 0))
    seventh = _lane(n_in, 7, lambda fresh: half_step(fresh, upper, HALF))

    @jit
    def add_lanes(x_at, w_at, residue, places, x, w, a, b, c):
        third(x_at, w_at, residue, places, x, w, b)
        seventh(x_at, w_at, residue, places, x, w, b)
        for v in range(HALF):
            a[outputs + v] = add(c[outputs + v], add(a[outputs + v], add(b[v], b[HALF + v])))

    return add_lanes


def _lanes_of_thread(n_in: int):
    """Build `lanes(x_at, w_at, residue, places, x, w, a, b, c)`: a residue's lanes and the tree's levels 128, 64 and 32; sums in `a`."""
    lane_0, lane_4, lane_2, lane_6, lane_1, lane_5 = (_lane(n_in, group, whole_step) for group in (0, 4, 2, 6, 1, 5))
    lower_outputs, upper_outputs = _last_lanes(n_in, False), _last_lanes(n_in, True)

    @jit
    def lanes(x_at, w_at, residue, places, x, w, a, b, c):
        lane_0(x_at, w_at, residue, places, x, w, a)
        lane_4(x_at, w_at, residue, places, x, w, b)
        for v in range(N_SUMS):
            c[v] = add(a[v], b[v])
        lane_2(x_at, w_at, residue, places, x, w, a)
        lane_6(x_at, w_at, residue, places, x, w, b)
        for v in range(N_SUMS):
            c[v] = add(c[v], add(a[v], b[v]))
        lane_1(x_at, w_at, residue, places, x, w, a)
        lane_5(x_at, w_at, residue, places, x, w, b)
        for v in range(N_SUMS):
            a[v] = add(a[v], b[v])
        lower_outputs(x_at, w_at, residue, places, x, w, a, b, c)
        upper_outputs(x_at, w_at, residue, places, x, w, a, b, c)

    return lanes


@jit
def store_before(at, thread, first_row, first_output, n_rows, n_out, out, is_first, apart):
    """Store the tile before that of first_row, `apart` rows ahead of it, if the block had one; is_first: whether the next one lies in the first slot."""
    if first_row >= apart:
        store_tile(at + (MEETING_BYTES if is_first else 0), thread, np.int32(first_row - apart), first_output, n_rows, n_out, out)


@cache
def short_tiles(type_name: str, n_columns: int, target: Target):
    """Return the kernel (weights, n_in, n_out, n_rows, x, out) for n_in = n_columns; grid (n_out / OUTPUTS rounded up, splits_of(...))."""
    widen_four, value_bytes = WIDEN_FOUR[type_name]
    copy_rows, done, lanes_of_thread = _step_copier(n_columns, target), copies(target, 0), _lanes_of_thread(n_columns)
    commit, wait_all, n_steps = done.commit, done.wait, -(-n_columns // STEP)
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
        for step in range(n_steps):
            copy_rows(to + X_BYTES * step, places, source, np.int32(STEP * step), n_in)

    @kernel(THREADS, 1)
    def run(weights, n_in, n_out, n_rows, x, out):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        thread = np.int32(cuda.threadIdx.x)
        last_row = np.int32(n_rows - 1)
        x_at, meeting = shared + WEIGHT_BYTES * n_steps, shared + n_steps * (WEIGHT_BYTES + 2 * X_BYTES)
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
            store_before(meeting, thread, first_row, first_output, n_rows, n_out, out, slot == x_at, apart)
            lanes_of_thread(slot, shared + 0, residue, places, x_values, w_values, a, b, c)
            meet(meeting + (0 if slot == x_at else MEETING_BYTES), thread, a)
            slot, other, first_row = other, slot, coming
        cuda.syncthreads()
        store_before(meeting, thread, first_row, first_output, n_rows, n_out, out, slot == x_at, apart)
        go_on()

    return run
