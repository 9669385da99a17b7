"""Products of many activation rows with float weights: 256 lanes, tiles of 32 rows x 32 outputs.

The order of host/float_products.py.  Lane = t + 16 v.  A thread has one residue t (t = warp + 8 r, r the highest bit of its place in the warp) of
8 rows x 8 outputs and takes its sixteen lanes one after the other, in the order in which the tree's levels 128, 64, 32 and 16 join
them: four lanes make a sum in registers, two sums wait in shared memory.  The levels 8 to 1: float_tile_stages.py.  Elements
arrive in stages of STEPS steps, SLOTS in flight: rows are copied three stages ahead, weights read two ahead and widened one ahead.

Bounds for a step (64 fused products a thread): 128 cycles of a multiprocessor's float units; 64 of its shared memory for reads,
32 for copies, 16 for weights; 3 KB of L2, where about 24 to 30 bytes a cycle can be had.  One block of eight warps fits on a multiprocessor.

Shapes as in float_rows.py.  Does not know: what the product is for.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.floats.float_tile_parts import (
    N_SUMS, PARKED_BYTES, SIDE, WIDEN_FOUR, ZERO, add_parked, clear, multiply, next_step, park, read_step,
)
from strata.cuda.floats.float_tile_stages import (
    OUTPUTS, RESIDUES, ROWS, STAGE_BYTES, STEP_BYTES, STEPS, THREADS, meet, read_places, residue_of, row_copier, row_places, store_tile,
    weight_loader, weight_place,
)
from strata.cuda.machine.addresses import global_address, shared_address
from strata.cuda.machine.seam import Target, add, copies, jit, kernel, launch_dependents, wait_for_dependency
from strata.numerics.orders import WIDE

SLOTS = 4
LANES = WIDE // RESIDUES
PER_STAGE = WIDE * STEPS
SHARED_BYTES = SLOTS * STAGE_BYTES + 2 * PARKED_BYTES


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
def _next_slot(slot):
    return np.int32(slot + STAGE_BYTES) if slot < (SLOTS - 1) * STAGE_BYTES else np.int32(0)


@jit
def _multiply_some(at, left, places, x, w, sums):
    """The steps of a stage that this thread's residue has."""
    for s in range(STEPS):
        if left > WIDE * s:
            next_step(at + STEP_BYTES * s, at + STEP_BYTES * s, places, x, w, sums)


def _stage_of(copy_step, load, store, value_bytes: int):
    """Build `stage(...)`: a stage's products, each step between its share of copies, stores and loads for the stages behind it.

    Each step is a loop of `once` = 1 turn, which its compiler does not know: without the loops it would put what moves memory ahead of all
    products.  A word read in a loop would be waited for at its end, where it changes its register.
    """

    def one(s, follow):
        x_at, weights_at_step, step_at = 4 * WIDE * s, value_bytes * WIDE * s, STEP_BYTES * s

        @jit
        def step(at, to_x, rows, source, to_w, weights, weights_at, held, places, x, w, once, sums):
            left = once
            while True:
                read_step(at + step_at, at + step_at, places, x, w)
                copy_step(to_x + step_at, rows[0], source + x_at, rows[2])
                store(to_w + step_at, held, s)
                multiply(x, w, sums)
                left = np.int32(left - 1)
                if left <= 0:
                    break
            load(weights, weights_at + weights_at_step, held, s)
            follow(at, to_x, rows, source, to_w, weights, weights_at, held, places, x, w, once, sums)

        return step

    @jit
    def nothing(at, to_x, rows, source, to_w, weights, weights_at, held, places, x, w, once, sums):
        return

    stage = nothing
    for s in reversed(range(STEPS)):
        stage = one(s, stage)
    return stage


@cache
def float_tiles(type_name: str, target: Target):
    """Return the kernel (weights, n_in, n_out, n_rows, x, out); grid (n_out / OUTPUTS, n_rows / ROWS), rounded up."""
    value_bytes = WIDEN_FOUR[type_name][1]
    copy_step, copy_some = row_copier(target)
    load, store, n_held = weight_loader(type_name)
    whole_stage, commit, wait_two, wait_all = _stage_of(copy_step, load, store, value_bytes), copies(target, 0).commit, copies(target, SLOTS - 2).wait, copies(target, 0).wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    parked_at, step_bytes = SLOTS * STAGE_BYTES, value_bytes * WIDE

    @jit
    def fetch_rows(to, rows, element, n_in):
        """Send a stage's rows on their way."""
        copy_some(to, rows[0], rows[1] + 4 * np.int64(element), rows[2], np.int32(n_in - element - (np.int32(cuda.threadIdx.x) & 15)))
        commit()

    @jit
    def fetch_weights(weights, source, element, n_in, own, held):
        for s in range(STEPS):
            if n_in - element - own > WIDE * s:
                load(weights, source + value_bytes * np.int64(element) + step_bytes * s, held, s)

    @jit
    def store_weights(to, held):
        for s in range(STEPS):
            store(to + STEP_BYTES * s, held, s)

    @jit
    def compute_lane(shared, weights, sources, n_in, n_chunks, own, places, held, x, w, coming, state, sums):
        """A lane's chain, into `sums`: a stage at a time, while those behind it arrive.

        coming: the stage whose rows are asked for next; state: the slot to be read, the slot that is free, the elements of this
        stage and the two behind it.
        """
        rows, weights_from = sources
        to_weights, pair, residue = own
        is_even, once = n_in % PER_STAGE == 0, min(np.int32(n_in), np.int32(1))
        clear(sums)
        for chunk in range(n_chunks):
            here, free, now, second, third = state
            following = _next_slot(here)
            at, to_x, to_w = shared + here, shared + free, shared + (following + to_weights)
            if is_even and coming[2] < n_in:
                whole_stage(
                    at, to_x, rows, rows[1] + 4 * np.int64(coming[2]), to_w, weights, weights_from + value_bytes * np.int64(third), held,
                    places, x, w, once, sums,
                )
                commit()
            else:
                store_weights(to_w, held)
                fetch_weights(weights, weights_from, third, n_in, pair, held)
                fetch_rows(to_x, rows, coming[2], n_in)
                _multiply_some(at, np.int32(n_in - now - residue), places, x, w, sums)
            wait_two()
            cuda.syncthreads()
            state = following, here, second, third, coming[2]
            coming = _following(coming, n_in, n_chunks)
        return coming, state

    @kernel(THREADS, 1)
    def run(weights, n_in, n_out, n_rows, x, out):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        wait_before()
        thread = np.int32(cuda.threadIdx.x)
        first_output, first_row = np.int32(np.int32(cuda.blockIdx.x) * OUTPUTS), np.int32(np.int32(cuda.blockIdx.y) * ROWS)
        own, pair, own_row = np.int32(thread & 15), np.int32(2 * (thread & 7)), np.int32(first_row + (thread >> 4))
        own_output = min(np.int32(first_output + (thread >> 3)), np.int32(n_out - 1))
        low, high = min(own_row, np.int32(n_rows - 1)), min(np.int32(own_row + 16), np.int32(n_rows - 1))
        x_from = global_address(x)
        rows = row_places(thread), x_from + 4 * (np.int64(low) * n_in + own), np.int32(4 * (high - low) * n_in)
        sources = rows, (np.int64(own_output) * n_in + pair) * value_bytes
        places, of_thread = read_places(thread), (weight_place(thread), pair, residue_of(thread))
        parked, n_chunks = shared + (parked_at + 4 * thread), np.int32((n_in + PER_STAGE - 1) // PER_STAGE)
        a, b, c = cuda.local.array(N_SUMS, np.float32), cuda.local.array(N_SUMS, np.float32), cuda.local.array(N_SUMS, np.float32)
        held, x_values, w_values = cuda.local.array(n_held, np.float32), cuda.local.array(SIDE, np.float32), cuda.local.array(SIDE, np.float32)
        for v in range(n_held):
            held[v] = ZERO

        first = np.int32(0), np.int32(0), np.int32(0)
        second = _following(first, n_in, n_chunks)
        third = _following(second, n_in, n_chunks)
        fetch_rows(shared + 0, rows, first[2], n_in)
        fetch_rows(shared + STAGE_BYTES, rows, second[2], n_in)
        fetch_rows(shared + 2 * STAGE_BYTES, rows, third[2], n_in)
        fetch_weights(weights, sources[1], first[2], n_in, pair, held)
        store_weights(shared + of_thread[0], held)
        fetch_weights(weights, sources[1], second[2], n_in, pair, held)
        wait_two()
        cuda.syncthreads()
        coming, state = _following(third, n_in, n_chunks), (np.int32(0), np.int32(3 * STAGE_BYTES), first[2], second[2], third[2])
        for two in range(LANES // 2):
            coming, state = compute_lane(shared, weights, sources, n_in, n_chunks, of_thread, places, held, x_values, w_values, coming, state, a)
            coming, state = compute_lane(shared, weights, sources, n_in, n_chunks, of_thread, places, held, x_values, w_values, coming, state, b)
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
