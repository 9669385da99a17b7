"""Products of many activation rows with float weights: 256 lanes, tiles of 16 rows x 32 outputs.

The order of host/float_products.py.  A block has one tile and goes through the lane groups one after the other, in stages of
STEPS elements a residue, two stages in flight; see float_tile_parts.py for who has which lane.  Sums of the tree's levels 64 and 32
wait in shared memory.

Bounds for a residue's element (64 fused products a thread): 16 cycles of a multiprocessor's float units; 6 to 16 of its
shared memory (4 reads of 16 bytes, which threads of equal residue share) and 3 for copies; 24 bytes of L2 a cycle at full float
speed, where about 24 to 30 can be had.  About 85 instructions are issued for 64 products.  One block of eight warps fits on a
multiprocessor.

Shapes as in float_rows.py.  Does not know: what the product is for.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.floats.float_tile_meeting import meet, read_places, store_tile, widened_place
from strata.cuda.floats.float_tile_parts import (
    LOW_HALF, MEETING_BYTES, N_SUMS, OUTPUTS, PARKED_BYTES, ROWS, SIDE, STEP, THREADS, WEIGHT_BYTES, WIDEN_FOUR, X_BYTES, ZERO, add_parked,
    clear, copied_row, copy_places, group_of, next_step, park, residue_of, row_copier, store_widened, widened_output,
)
from strata.cuda.machine.addresses import global_address, shared_address
from strata.cuda.machine.seam import (
    Target, add, bits, brain, copies, from_bits, half, jit, kernel, launch_dependents, load_four_floats, load_two_words, wait_for_dependency,
)
from strata.numerics.orders import WIDE

STEPS = 5
"""Elements of a lane per stage."""
N_HELD = 4 * STEPS
STAGE_BYTES = STEPS * (X_BYTES + WEIGHT_BYTES)
SHARED_BYTES = max(2 * STAGE_BYTES, MEETING_BYTES) + 2 * PARKED_BYTES


def fits(capability: tuple[int, int]) -> bool:
    """Whether a block fits on a multiprocessor: data-centre cards from 9.0 to 10.x have 227 KB, all others less."""
    return (9, 0) <= capability < (11, 0)


def _float_loader():
    @jit
    def load(weights, at, left, held):
        for s in range(STEPS):
            if left > WIDE * s:
                v = 4 * s
                held[v], held[v + 1], held[v + 2], held[v + 3] = load_four_floats(weights, at + 4 * WIDE * s)

    @jit
    def store(to, held):
        for s in range(STEPS):
            v = 4 * s
            store_widened(to + WEIGHT_BYTES * s, held[v], held[v + 1], held[v + 2], held[v + 3])

    return load, store


def _stage_loader(type_name: str):
    """Build `load(weights, at, left, held)` and `store(to, held)`: a thread's four elements of each step.

    Values of two bytes stay as they were read until they are stored, two words a step: widened at once, every warp would wait for them
    ahead of the products of the stage before.
    """
    if type_name == "F32":
        return _float_loader()
    widen = {"BF16": brain, "F16": half}[type_name]

    @jit
    def load(weights, at, left, held):
        for s in range(STEPS):
            if left > WIDE * s:
                a, b = load_two_words(weights, at + 2 * WIDE * s)
                held[2 * s], held[2 * s + 1] = from_bits(np.int32(a)), from_bits(np.int32(b))

    @jit
    def store(to, held):
        for s in range(STEPS):
            a, b = np.uint32(bits(held[2 * s])), np.uint32(bits(held[2 * s + 1]))
            store_widened(to + WEIGHT_BYTES * s, widen(a & LOW_HALF), widen(a >> 16), widen(b & LOW_HALF), widen(b >> 16))

    return load, store


@jit
def _multiply(at, left, places, x, w, sums):
    """The steps of a stage that this thread's residue has; written out where it has all, so that reads run ahead."""
    to = at + STEPS * X_BYTES
    if left > WIDE * (STEPS - 1):
        next_step(at, to, places, x, w, sums)
        next_step(at + X_BYTES, to + WEIGHT_BYTES, places, x, w, sums)
        next_step(at + 2 * X_BYTES, to + 2 * WEIGHT_BYTES, places, x, w, sums)
        next_step(at + 3 * X_BYTES, to + 3 * WEIGHT_BYTES, places, x, w, sums)
        next_step(at + 4 * X_BYTES, to + 4 * WEIGHT_BYTES, places, x, w, sums)
    else:
        for s in range(STEPS - 1):
            if left > WIDE * s:
                next_step(at + X_BYTES * s, to + WEIGHT_BYTES * s, places, x, w, sums)


@cache
def float_tiles(type_name: str, target: Target):
    """Return the kernel (weights, n_in, n_out, n_rows, x, out); grid (n_out / OUTPUTS, n_rows / ROWS), rounded up."""
    value_bytes = WIDEN_FOUR[type_name][1]
    copy_rows = row_copier(STEPS, X_BYTES, WIDE, target)
    load_weights, store_weights = _stage_loader(type_name)
    done = copies(target, 0)
    commit, wait_all = done.commit, done.wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    per_stage, parked_at = WIDE * STEPS, SHARED_BYTES - 2 * PARKED_BYTES

    @kernel(THREADS, 1)
    def run(weights, n_in, n_out, n_rows, x, out):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        wait_before()
        thread = np.int32(cuda.threadIdx.x)
        first_output, first_row = np.int32(np.int32(cuda.blockIdx.x) * OUTPUTS), np.int32(np.int32(cuda.blockIdx.y) * ROWS)
        row = min(np.int32(first_row + copied_row(thread)), np.int32(n_rows - 1))
        own_output = min(np.int32(first_output + widened_output(thread)), np.int32(n_out - 1))
        row_from = global_address(x) + 4 * np.int64(row) * n_in
        own_element, own_place = np.int32(4 * (thread & 7)), widened_place(thread) + STEPS * X_BYTES
        weights_from = (np.int64(own_output) * n_in + own_element) * value_bytes
        to_rows, places, residue = copy_places(thread), read_places(thread), residue_of(thread)
        parked = shared + (parked_at + 4 * thread)
        n_chunks = np.int32((n_in + per_stage - 1) // per_stage)
        a, b = cuda.local.array(N_SUMS, np.float32), cuda.local.array(N_SUMS, np.float32)
        held, x_values, w_values = cuda.local.array(N_HELD, np.float32), cuda.local.array(SIDE, np.float32), cuda.local.array(SIDE, np.float32)
        for v in range(N_HELD):
            held[v] = ZERO

        copy_rows(shared + 0, to_rows, row_from, np.int32(0), n_in)
        commit()
        load_weights(weights, weights_from, np.int32(n_in - own_element), held)
        store_weights(shared + own_place, held)
        wait_all()
        cuda.syncthreads()
        slot, other, here = shared + 0, shared + STAGE_BYTES, np.int32(0)
        for turn in range(4):
            clear(a)
            clear(b)
            for side in range(2):
                following = np.int32(STEP * group_of(np.int32(2 * turn + side + 1)))
                for chunk in range(n_chunks):
                    coming = np.int32(here + per_stage) if chunk + 1 < n_chunks else following
                    if chunk + 1 < n_chunks or 2 * turn + side < 7:
                        copy_rows(other, to_rows, row_from, coming, n_in)
                        load_weights(weights, weights_from + value_bytes * np.int64(coming), np.int32(n_in - coming - own_element), held)
                    commit()
                    left = np.int32(n_in - here - residue)
                    if side == 0:
                        _multiply(slot, left, places, x_values, w_values, a)
                    else:
                        _multiply(slot, left, places, x_values, w_values, b)
                    store_weights(other + own_place, held)
                    wait_all()
                    cuda.syncthreads()
                    slot, other, here = other, slot, coming
            for v in range(N_SUMS):
                a[v] = add(a[v], b[v])
            if turn == 0 or turn == 2:
                park(parked, a)
            else:
                add_parked(parked, a)
                if turn == 1:
                    park(parked + PARKED_BYTES, a)
        add_parked(parked + PARKED_BYTES, a)
        meet(shared + 0, thread, a)
        cuda.syncthreads()
        store_tile(shared + 0, thread, first_row, first_output, n_rows, n_out, out)
        go_on()

    return run
