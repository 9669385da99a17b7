"""Products of five to eight activation rows with quantised weights: int8 tensor cores, one warp for each of the eight lanes.

The order of host/products.py: group g belongs to lane g mod 8, a lane is a chain in ascending g, the eight lanes meet in the
eight-lane tree.  A block of eight warps has 16 output rows at a time; warp w computes lane w of all of them for eight activation
rows, two groups between branches, so that the reads and products of one run while the floats of the other are computed.  The
activation rows lie in shared memory throughout, packed weights come some stages ahead, for n_turns times 16 output rows.

Shapes as in rows.py; shared memory as in window_cuts.py.  Does not know: matrices beside each other (window_kernels.py), layers.
"""

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.machine.addresses import copier, global_address, shared_address, shared_float, store_shared_float
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.seam import Target, copies, jit, launch_dependents, wait_for_dependency
from strata.cuda.packed.lifted import PER_ROW
from strata.cuda.packed.staging import UNIT, rows_are_aligned, staging_of, weight_fetcher
from strata.cuda.packed.tile_parts import NOTHING, ZERO
from strata.cuda.packed.window_cuts import (
    CODE_PAD, COPIERS, LANE_BYTES, MARK_BYTES, MEETING_BYTES, MOST_ROWS, OUTPUTS, VALUE_BYTES,
)
from strata.cuda.packed.window_parts import group_products
from strata.formats.contract import WeightFormat
from strata.numerics.orders import EIGHT

N_VALUES = 2 * PER_ROW


def _row_stager(target: Target):
    """Build `stage(codes_to, marks_to, marks_bytes, code_pitch, codes, scales, sums, n_rows, n_groups, row, part)`: one row, by a warp.

    Behind a row's last group its marks are 0 up to where marks_bytes end.
    """
    copy16, copy4 = copier(16, 0, 0, target), copier(4, 0, 0, target)

    @jit
    def stage(codes_to, marks_to, marks_bytes, code_pitch, codes, scales, sums, n_rows, n_groups, row, part):
        if row < n_rows:
            first = np.int64(row) * n_groups
            for piece in range(part, 2 * n_groups, 32):
                copy16(codes_to + (row * code_pitch + 16 * piece), codes + (32 * first + 16 * piece))
            for group in range(part, n_groups, 32):
                to = marks_to + (MARK_BYTES * group + 4 * row)
                copy4(to, scales + 4 * (first + group))
                copy4(to + marks_bytes, sums + 4 * (first + group))
        for at in range(MARK_BYTES * (n_groups + part), marks_bytes, 32 * MARK_BYTES):
            store_shared_float(marks_to + (at + 4 * row), ZERO)
            store_shared_float(marks_to + (at + 4 * row) + marks_bytes, ZERO)

    return stage


@jit
def _meet(meeting, lanes, warp, in_warp, thread, first, n_out, n_rows, out):
    """The eight lanes of a turn's outputs meet in the tree; the sums are stored, 16 neighbouring outputs of a row side by side."""
    own_place = meeting + (LANE_BYTES * warp + 4 * in_warp)
    for v in range(PER_ROW):
        store_shared_float(own_place + VALUE_BYTES * v, lanes[v])
        lanes[v] = ZERO
    cuda.syncthreads()
    if thread < OUTPUTS * MOST_ROWS:
        own, row = thread & (OUTPUTS - 1), thread >> 4
        at = meeting + (VALUE_BYTES * (2 * (own >> 3) + (row & 1)) + 16 * (own & 7) + 4 * (row >> 1))
        total = tree8(
            shared_float(at), shared_float(at + LANE_BYTES), shared_float(at + 2 * LANE_BYTES), shared_float(at + 3 * LANE_BYTES),
            shared_float(at + 4 * LANE_BYTES), shared_float(at + 5 * LANE_BYTES), shared_float(at + 6 * LANE_BYTES), shared_float(at + 7 * LANE_BYTES),
        )
        n = np.int32(first + own)
        if row < n_rows and n < n_out:
            out[np.int64(row) * n_out + n] = total


def _stage_products(form: WeightFormat, units: int, target: Target):
    """Build `products(...)`: one stage's groups of this warp's lane, two units at a time.

    Addresses: `own_at` the row whose scales this thread unpacks, in the unit that it takes; `rows_at` the first of its two
    rows, `behind` the bytes to each; codes_at, scales_at, sums_at this thread's of the lane's first group in the stage;
    `own_left`: groups of the row from the own unit's one on.  A group behind the row's end has the scale +0 on both sides and
    adds +0 or -0, which changes no lane: none is ever -0, since it starts at +0 and integers times scales do not round to zero.
    """
    unpack, gather, multiply = group_products(form, target)
    unit_bytes, marks_bytes = staging_of(form, units).unit_bytes, EIGHT * MARK_BYTES

    @jit
    def products(own_at, rows_at, behind, group, j, codes_at, scales_at, sums_at, left, own_left, source, scales, words, lanes):
        first, second = scales
        done, n_there = np.int32(0), min(left, np.int32(EIGHT * units))
        while done < n_there:
            d, s0, s1, offset = unpack(NOTHING, own_at, group)
            is_there = done < own_left
            own = d if is_there else ZERO, s0, s1, offset if is_there else ZERO
            gather(own, source, first)
            gather(own, source + OUTPUTS, second)
            multiply(rows_at, behind, group, j, codes_at, scales_at, sums_at, first, words, lanes)
            multiply(
                rows_at + unit_bytes, behind, group, j, codes_at + UNIT, scales_at + marks_bytes, sums_at + marks_bytes,
                second, words, lanes,
            )
            own_at, rows_at, codes_at = own_at + 2 * unit_bytes, rows_at + 2 * unit_bytes, codes_at + 2 * UNIT
            scales_at, sums_at, done = scales_at + 2 * marks_bytes, sums_at + 2 * marks_bytes, np.int32(done + 2 * EIGHT)

    return products


def window_block(form: WeightFormat, units: int, stages: int, target: Target):
    """Build `compute(block, weights, row_bytes, n_groups, n_out, n_rows, n_turns, codes, scales, sums, out)`: one block of one matrix.

    `block` counts the matrix's blocks, `weights` is its address.  Half of the stages are sent before the previous kernel's results are
    waited for, the rest behind the activation rows, which therefore wait for no more weights than those.
    """
    staging = staging_of(form, units)
    fetch, move, stage_row = weight_fetcher(staging, COPIERS, target), copies(target, stages - 2), _row_stager(target)
    early = stages // 2
    commit, wait, wait_early = move.commit, move.wait, copies(target, stages - 1 - early).wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    products = _stage_products(form, units, target)
    pitch, stage_bytes, unit_bytes = staging.pitch, staging.stage_bytes, staging.unit_bytes
    groups_per_block, block_bytes, is_aligned = staging.groups_per_block, form.block_bytes, rows_are_aligned(form)
    slot_bytes = OUTPUTS * pitch
    last_slot = (stages - 1) * slot_bytes

    @jit
    def fetch_next(slot, weights, upcoming, end, last, row_bytes, all_bytes, part):
        """Send one stage, if any is left, close its group of copies, and return what comes next: (output row, bytes behind its start)."""
        n, moved = upcoming
        if n < end:
            start = np.int64(min(n, last)) * row_bytes
            before = np.int32(0) if is_aligned else np.int32(start & 15)
            piece = np.int32((before + moved) & -16) + 16 * part
            fetch(slot, weights + (start - before + piece), np.int32(before + row_bytes - piece), part)
            moved = np.int32(moved + stage_bytes)
            if moved == all_bytes:
                moved, n = np.int32(0), np.int32(n + OUTPUTS)
        commit()
        return n, moved

    @jit
    def low_bits(n, last, row_bytes):
        return np.int32(np.int32((row_bytes & 15) * min(np.int32(n), last)) & 15)

    @jit
    def compute(block, weights, row_bytes, n_groups, n_out, n_rows, n_turns, codes, scales, sums, out):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        thread = np.int32(cuda.threadIdx.x)
        warp, in_warp = thread >> 5, thread & 31
        j, r, own, part = in_warp & 3, in_warp >> 2, in_warp & (OUTPUTS - 1), thread & (COPIERS - 1)
        first = np.int32(block) * np.int32(n_turns * OUTPUTS)
        last, end = np.int32(n_out - 1), min(np.int32(n_out), np.int32(first + n_turns * OUTPUTS))
        n_units, n_stages = np.int32((n_groups + 15) >> 4 << 1), np.int32((n_groups + 8 * units - 1) // (8 * units))
        all_bytes = np.int32(n_stages * stage_bytes)
        code_pitch, marks_bytes = np.int32(n_units * UNIT + CODE_PAD), np.int32(n_units * EIGHT * MARK_BYTES)
        codes_to = shared + MEETING_BYTES
        marks_to = codes_to + MOST_ROWS * code_pitch
        stages_at = marks_to + 2 * marks_bytes
        own_slot = (thread // COPIERS) * pitch + 16 * part
        copied, fetch_end = np.int32(thread // COPIERS), np.int32((end + OUTPUTS - 1) & -OUTPUTS)
        upcoming = np.int32(first + copied), np.int32(0)
        for ahead in range(early):
            upcoming = fetch_next(stages_at + (ahead * slot_bytes + own_slot), weights, upcoming, fetch_end, last, row_bytes, all_bytes, part)
        go_on()
        wait_before()
        places = global_address(codes), global_address(scales), global_address(sums)
        stage_row(codes_to, marks_to, marks_bytes, code_pitch, places[0], places[1], places[2], n_rows, n_groups, warp, in_warp)
        commit()
        for ahead in range(early, stages - 1):
            upcoming = fetch_next(stages_at + (ahead * slot_bytes + own_slot), weights, upcoming, fetch_end, last, row_bytes, all_bytes, part)
        wait_early()
        cuda.syncthreads()
        lanes, words, behind = cuda.local.array(4, np.float32), cuda.local.array(4, np.int32), cuda.local.array(2, np.int64)
        scales_of_rows = cuda.local.array(N_VALUES, np.float32), cuda.local.array(N_VALUES, np.float32)
        for v in range(4):
            lanes[v] = ZERO
        block_at, group = (warp // groups_per_block) * block_bytes, warp % groups_per_block
        own_from = own * pitch + block_at + (in_warp >> 4) * unit_bytes
        rows_from = r * pitch + block_at
        codes_from = codes_to + (r * code_pitch + 4 * j + 32 * warp)
        marks_from = marks_to + (MARK_BYTES * warp + 8 * j)
        own_low = low_0 = low_1 = np.int32(0)
        slot = np.int32(0)
        while first < end:
            if not is_aligned:
                own_low = low_bits(first + own, last, row_bytes)
                low_0, low_1 = low_bits(first + r, last, row_bytes), low_bits(first + r + 8, last, row_bytes)
            moved, left, codes_at, marks_at = np.int32(0), np.int32(n_groups), codes_from, marks_from
            while left > 0:
                wait()
                cuda.syncthreads()
                ahead = np.int32(slot - slot_bytes) if slot > 0 else np.int32(last_slot)
                upcoming = fetch_next(stages_at + np.int32(ahead + own_slot), weights, upcoming, fetch_end, last, row_bytes, all_bytes, part)
                behind[0], behind[1] = (low_0 + moved) & 15, 8 * pitch + ((low_1 + moved) & 15)
                if is_aligned:
                    behind[0], behind[1] = 0, 8 * pitch
                own_at = stages_at + (slot + own_from + (0 if is_aligned else (own_low + moved) & 15))
                products(
                    own_at, stages_at + (slot + rows_from), behind, group, j, codes_at, marks_at, marks_at + marks_bytes, left,
                    np.int32(left - warp - EIGHT * (in_warp >> 4)), r, scales_of_rows, words, lanes,
                )
                moved, left = np.int32((moved + stage_bytes) & 15), np.int32(left - 8 * units)
                codes_at, marks_at = codes_at + units * UNIT, marks_at + units * EIGHT * MARK_BYTES
                slot = np.int32(slot + slot_bytes) if slot < last_slot else np.int32(0)
            _meet(shared + 0, lanes, warp, in_warp, thread, first, n_out, n_rows, out)
            first = np.int32(first + OUTPUTS)

    return compute
