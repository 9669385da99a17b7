"""Products of many activation rows with float weights: 256 lanes, tiles of 32 rows x 32 outputs.

The order of host/float_products.py.  Lane = t + 16 v.  A thread has one residue t (t = warp + 8 r, r the highest bit of its place in the warp) of
8 rows x 8 outputs and takes its sixteen lanes one after the other, in the order in which the tree's levels 128, 64, 32 and 16 join
them: four lanes make a sum in registers, two sums wait in shared memory.  The levels 8 to 1: float_tile_stages.py.  Elements
arrive in stages of STEPS steps: rows and weights are copied three stages ahead, weights of two bytes are widened one stage ahead.

Bounds for a step (64 fused products a thread): 128 cycles of a multiprocessor's float units; 64 of its shared memory for reads, 64 for
copies, 24 for weights widened; 3 KB of L2, where about 24 to 30 bytes a cycle can be had.  One block of eight warps, two a scheduler, fits
on a multiprocessor: 37 to 40 % of the float units' time were measured, each of many small waits taking a little.

Shapes as in float_rows.py.  Does not know: what the product is for.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.floats.float_tile_stages import (
    OUTPUTS, RESIDUES, ROWS, STEPS, WEIGHT_BYTES, X_BYTES, WeightWay, meet, read_places, residue_of, row_copier, row_places,
    store_tile, weight_place, weight_way,
)
from strata.cuda.floats.float_tile_steps import (
    N_SUMS, PARKED_BYTES, SIDE, THREADS, WIDEN_FOUR, add_parked, clear, multiply, next_step, park, read_step,
)
from strata.cuda.machine.addresses import global_address, shared_address
from strata.cuda.machine.seam import Target, add, copies, jit, kernel, launch_dependents, wait_for_dependency
from strata.numerics.orders import WIDE

SLOTS = 4
LANES = WIDE // RESIDUES
PER_STAGE = WIDE * STEPS
ROW_STAGE, WEIGHT_STAGE = STEPS * X_BYTES, STEPS * WEIGHT_BYTES
WIDE_AT, PARKED_AT = SLOTS * ROW_STAGE, 2 * SLOTS * ROW_STAGE
"""Where weights lie at their places, behind the ring of rows, and, behind all rings, parked sums.  Weights have as much room as rows: SLOTS
stages as floats, or two of these and SLOTS as they are."""
SHARED_BYTES = PARKED_AT + 2 * PARKED_BYTES


def fits(capability: tuple[int, int]) -> bool:
    """Whether a block fits on a multiprocessor: data-centre cards from 9.0 to 10.x have 227 KB, all others less."""
    return (9, 0) <= capability < (11, 0)


@jit
def _first_of(lane):
    """The first element of a thread's lane 0 .. 15, residue 0: the lanes come with the bits of their number turned round."""
    return np.int32(RESIDUES * (((lane & 1) << 3) | ((lane & 2) << 1) | ((lane & 4) >> 1) | (lane >> 3)))


@jit
def _following(stage, n_in, n_chunks):
    """The stage behind (lane, chunk of it, first element): behind the last lane the element is n_in."""
    lane, chunk, element = stage
    if chunk + 1 < n_chunks:
        return lane, np.int32(chunk + 1), np.int32(element + PER_STAGE)
    lane = np.int32(lane + 1)
    return lane, np.int32(0), _first_of(lane) if lane < LANES else np.int32(n_in)


@jit
def _multiply_some(x_at, w_at, left, places, x, w, sums):
    """The steps of a stage that this thread's residue has."""
    for s in range(STEPS):
        if left > WIDE * s:
            next_step(x_at + X_BYTES * s, w_at + WEIGHT_BYTES * s, places, x, w, sums)


def _stage_of(copy_step, way: WeightWay, value_bytes: int):
    """Build `stage(reads, moves, rows, places, x, w, sums)`: a stage's products, each step between its share of what brings those behind it.

    reads: where the stage's rows and weights lie; moves: to where and from where rows go, weights go as they are and at their places, from
    where, and from where to where arrived ones are widened.  A step begins with the weights that have arrived as they are: what it
    writes waits for them, and all reads and copies behind it keep their order, so that they stay mixed with the products.
    """
    copy_weights, widen = way.copy, way.widen

    def one(s, follow):
        x_step, w_step, raw_step = X_BYTES * s, WEIGHT_BYTES * s, way.raw_bytes * s
        x_from, w_from = 4 * WIDE * s, value_bytes * WIDE * s

        @jit
        def step(reads, moves, rows, places, x, w, sums):
            row_to, row_source, raw_to, wide_to, weight_source, raw_at, wide_at = moves
            widen(raw_at + raw_step, wide_at + w_step)
            read_step(reads[0] + x_step, reads[1] + w_step, places, x, w)
            copy_step(row_to + x_step, rows[0], row_source + x_from, rows[2])
            copy_weights(raw_to + raw_step, wide_to + w_step, weight_source + w_from)
            multiply(x, w, sums)
            follow(reads, moves, rows, places, x, w, sums)

        return step

    @jit
    def nothing(reads, moves, rows, places, x, w, sums):
        return

    stage = nothing
    for s in reversed(range(STEPS)):
        stage = one(s, stage)
    return stage


def _fetches_of(way: WeightWay, value_bytes: int, target: Target):
    """Build `rows(to, rows, element, n_in)`, `weights(raw, wide, source, element, n_in)` and `widen(raw, wide)`, each for a whole stage, element by
    element where it is there."""
    copy_some, copy_weights, widen_step, raw_step = row_copier(target)[1], way.copy, way.widen, way.raw_bytes

    @jit
    def fetch_rows(to, rows, element, n_in):
        copy_some(to, rows[0], rows[1] + 4 * np.int64(element), rows[2], np.int32(n_in - element - (np.int32(cuda.threadIdx.x) & 15)))

    @jit
    def fetch_weights(raw, wide, source, element, n_in):
        for s in range(STEPS):
            if n_in - element - 2 * (np.int32(cuda.threadIdx.x) & 7) > WIDE * s:
                copy_weights(raw + raw_step * s, wide + WEIGHT_BYTES * s, source + value_bytes * (np.int64(element) + WIDE * s))

    @jit
    def widen(raw, wide):
        for s in range(STEPS):
            widen_step(raw + raw_step * s, wide + WEIGHT_BYTES * s)

    return fetch_rows, fetch_weights, widen


def _lane_of(way: WeightWay, fetches: tuple, value_bytes: int, target: Target):
    """Build `compute_lane(own, rows, weights_from, n_in, n_chunks, places, x, w, coming, state, sums)`: a lane's chain, into `sums`, a stage
    at a time, while those behind it arrive; returns coming and state.

    own: addresses of the rows' ring, the thread's places in those of weights and of raw weights; state: number of the stage modulo SLOTS,
    first elements of the stage and the three behind it; coming: the one behind these.
    """
    stage, (fetch_rows, fetch_weights, widen) = _stage_of(row_copier(target)[0], way, value_bytes), fetches
    commit, wait_two, is_widened = copies(target, 0).commit, copies(target, SLOTS - 2).wait, way.raw_bytes > 0
    wide_at, wide_mask, raw_stage = WIDE_AT, way.slots - 1, STEPS * way.raw_bytes

    @jit
    def compute_lane(own, rows, weights_from, n_in, n_chunks, places, x, w, coming, state, sums):
        is_even = n_in % PER_STAGE == 0
        clear(sums)
        for chunk in range(n_chunks):
            turn, now, second, third, fourth = state
            following, free = (turn + 1) & (SLOTS - 1), (turn + SLOTS - 1) & (SLOTS - 1)
            reads = own[0] + ROW_STAGE * turn, own[0] + (wide_at + WEIGHT_STAGE * (turn & wide_mask))
            row_to, wide_to = own[0] + ROW_STAGE * free, own[1] + WEIGHT_STAGE * (free & wide_mask)
            raw_from, wide_next = own[2] + raw_stage * following, own[1] + WEIGHT_STAGE * (following & wide_mask)
            raw_to, weights_element = own[2] + raw_stage * turn, coming[2] if is_widened else fourth
            if is_even and coming[2] < n_in:
                row_source, weight_source = rows[1] + 4 * np.int64(fourth), weights_from + value_bytes * np.int64(weights_element)
                moves = row_to, row_source, raw_to, wide_to, weight_source, raw_from, wide_next
                stage(reads, moves, rows, places, x, w, sums)
            else:
                fetch_rows(row_to, rows, fourth, n_in)
                fetch_weights(raw_to, wide_to, weights_from, weights_element, n_in)
                widen(raw_from, wide_next)
                _multiply_some(reads[0], reads[1], np.int32(n_in - now - residue_of(np.int32(cuda.threadIdx.x))), places, x, w, sums)
            commit()
            wait_two()
            cuda.syncthreads()
            state = np.int32(following), second, third, fourth, coming[2]
            coming = _following(coming, n_in, n_chunks)
        return coming, state

    return compute_lane


@cache
def float_tiles(type_name: str, target: Target):
    """Return the kernel (weights, n_in, n_out, n_rows, x, out); grid (n_out / OUTPUTS, n_rows / ROWS), rounded up."""
    value_bytes, way = WIDEN_FOUR[type_name][1], weight_way(type_name, SLOTS, target)
    fetch_rows, fetch_weights, widen = fetches = _fetches_of(way, value_bytes, target)
    compute_lane, commit = _lane_of(way, fetches, value_bytes, target), copies(target, 0).commit
    wait_two, wait_all, is_widened = copies(target, SLOTS - 2).wait, copies(target, 0).wait, way.raw_bytes > 0
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    wide_at, raw_at, raw_stage = WIDE_AT, WIDE_AT + way.slots * WEIGHT_STAGE, STEPS * way.raw_bytes

    @kernel(THREADS, 1)
    def run(weights, n_in, n_out, n_rows, x, out):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        wait_before()
        thread = np.int32(cuda.threadIdx.x)
        first_output, first_row = np.int32(np.int32(cuda.blockIdx.x) * OUTPUTS), np.int32(np.int32(cuda.blockIdx.y) * ROWS)
        first, own_row = np.int32(thread & 15), np.int32(first_row + (thread >> 4))
        own_output = min(np.int32(first_output + (thread >> 3)), np.int32(n_out - 1))
        low, high = min(own_row, np.int32(n_rows - 1)), min(np.int32(own_row + 16), np.int32(n_rows - 1))
        x_from = global_address(x)
        rows = row_places(thread), x_from + 4 * (np.int64(low) * n_in + first), np.int32(4 * (high - low) * n_in)
        weights_from = global_address(weights) + (np.int64(own_output) * n_in + 2 * (thread & 7)) * value_bytes
        own = shared + 0, shared + (wide_at + weight_place(thread)), shared + (raw_at + 4 * thread)
        places = read_places(thread)
        parked, n_chunks = shared + (PARKED_AT + 4 * thread), np.int32((n_in + PER_STAGE - 1) // PER_STAGE)
        a, b, c = cuda.local.array(N_SUMS, np.float32), cuda.local.array(N_SUMS, np.float32), cuda.local.array(N_SUMS, np.float32)
        x_values, w_values = cuda.local.array(SIDE, np.float32), cuda.local.array(SIDE, np.float32)

        stages = np.int32(0), np.int32(0), np.int32(0)
        state = np.int32(0), np.int32(0), np.int32(0), np.int32(0), np.int32(0)
        # Stages 0, 1 and 2: of rows, and of weights that go to their places; of others one more, of which the first is widened here.
        if is_widened:
            fetch_weights(own[2] + 0, own[1] + 0, weights_from, stages[2], n_in)
        for number in range(SLOTS - 1):
            fetch_rows(own[0] + ROW_STAGE * number, rows, stages[2], n_in)
            state = state[0], state[2], state[3], stages[2], np.int32(0)
            if not is_widened:
                fetch_weights(own[2] + 0, own[1] + WEIGHT_STAGE * number, weights_from, stages[2], n_in)
            stages = _following(stages, n_in, n_chunks)
            if is_widened:
                fetch_weights(own[2] + raw_stage * (number + 1), own[1] + 0, weights_from, stages[2], n_in)
            commit()
        wait_two()
        if is_widened:
            widen(own[2] + 0, own[1] + 0)
        cuda.syncthreads()
        state, coming = (state[0], state[1], state[2], state[3], stages[2]), _following(stages, n_in, n_chunks)
        for two in range(LANES // 2):
            coming, state = compute_lane(own, rows, weights_from, n_in, n_chunks, places, x_values, w_values, coming, state, a)
            coming, state = compute_lane(own, rows, weights_from, n_in, n_chunks, places, x_values, w_values, coming, state, b)
            for v in range(N_SUMS):
                a[v] = add(a[v], b[v])
            if two & 1 == 0:
                for v in range(N_SUMS):
                    c[v] = a[v]
            else:
                for v in range(N_SUMS):
                    a[v] = add(c[v], a[v])
                if two & 2 == 0:
                    park(parked, a)
                else:
                    add_parked(parked, a)
                    if two & 4 == 0:
                        park(parked + PARKED_BYTES, a)
        add_parked(parked + PARKED_BYTES, a)
        wait_all()
        meet(shared + 0, thread, a)
        cuda.syncthreads()
        store_tile(shared + 0, thread, first_row, first_output, n_rows, n_out, out)
        go_on()

    return run
