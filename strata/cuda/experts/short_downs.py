"""Down of windows of several rows where weight rows are short: a row is one stage, whole.

What `expert_parts.down_part` does, in the same order, with fewer instructions beside the products: a turn of 64 weight rows is
fetched as it stands, two turns ahead of its use, and every group of a row has its place in one straight piece of code.
Rows have up to MOST_UNITS times 256 weights; matrices whole turns, so that all rows of a thread begin alike within 16 bytes.

Shared memory of a block: activation rows (staging.py), then every warp's two slots of four left and four right rows.
Does not know: arguments, launches.
"""

from types import SimpleNamespace

import numpy as np
from numba import cuda

from strata.cuda.experts.listed_passes import listed_pass
from strata.cuda.experts.pairs import SIDE_ROWS, THREADS, WARPS
from strata.cuda.machine.addresses import global_address
from strata.cuda.machine.seam import Target, copies, jit, launch_dependents, sync_warp, wait_for_dependency
from strata.cuda.packed.readers import reader_of
from strata.cuda.packed.row_parts import pair_step, tree_of_lanes
from strata.cuda.packed.staging import UNIT, UNIT_BYTES, Staging, activation_bytes, row_stager, weight_fetcher
from strata.formats.contract import WeightFormat
from strata.formats.table import FORMATS

ZERO = np.float32(0.0)
MOST_UNITS = 3
MOST_ROW_BYTES = 512 - 15
SLOTS = 2
TURN_ROWS = 2 * SIDE_ROWS
OVERREAD = 1 << 10
"""Bytes behind the last slot that threads without a group in a row's last unit may read; nobody uses them."""


def takes(form: WeightFormat, n_groups: int, n_out: int) -> bool:
    """Whether rows are short enough and matrices whole turns."""
    return n_groups <= 8 * MOST_UNITS and _row_bytes(form, n_groups) <= MOST_ROW_BYTES and n_out % TURN_ROWS == 0


def shared_bytes(form: WeightFormat, n_rows: int, n_groups: int) -> int:
    """Return the dynamic shared memory of a block whose passes take n_rows activation rows."""
    return activation_bytes(n_rows, n_groups) + WARPS * SLOTS * 8 * _whole(form, n_groups).pitch + OVERREAD


def _row_bytes(form: WeightFormat, n_groups: int) -> int:
    return n_groups * 32 // form.block_weights * form.block_bytes


def _whole(form: WeightFormat, n_groups: int) -> Staging:
    """Return the constants of a stage that is a row."""
    n_bytes = _row_bytes(form, n_groups)
    pieces = (15 + n_bytes + 15) // 16
    return Staging(n_bytes, 1, 16 * (pieces | 1), pieces, form.block_weights // 32)


def _fetching(form: WeightFormat, n_groups: int, target: Target) -> SimpleNamespace:
    """Build `fetch(slot, source, left, lane)`: a thread's part of its left and right row; `commit`, and waits for all and all but one."""
    staging, newest, everything = _whole(form, n_groups), copies(target, SLOTS - 1), copies(target, 0)
    fetch_row = weight_fetcher(staging, 8, target)
    side_bytes, right_at = SIDE_ROWS * staging.unit_bytes, 4 * staging.pitch

    @jit
    def fetch(slot, source, left, lane):
        fetch_row(slot, source, left, lane)
        fetch_row(slot + right_at, source + side_bytes, left, lane)

    return SimpleNamespace(fetch=fetch, commit=everything.commit, wait=newest.wait, wait_all=everything.wait, staging=staging)


def _row_products(form: WeightFormat, n_groups: int, n_rows: int, target: Target):
    """Build `multiply(left_at, right_at, lane, codes_at, marks_at, left, right)`: two whole rows meet n_rows activation rows."""
    reader, staging = reader_of(form), _whole(form, n_groups)
    step = pair_step(reader, form.split_scales, form.has_offset, n_rows)
    unit_bytes, block_bytes, groups_per_block = form.block_bytes * UNIT // form.block_weights, form.block_bytes, staging.groups_per_block
    n_whole, n_beyond = n_groups // 8, n_groups % 8
    n_units = n_whole + (1 if n_beyond else 0)
    codes_pitch, marks_pitch = n_units * UNIT, n_units * (UNIT_BYTES - UNIT)

    @jit
    def multiply(left_at, right_at, lane, codes_at, marks_at, left, right):
        block_at, group = (lane // groups_per_block) * block_bytes, lane % groups_per_block
        left_at, right_at, codes_at, marks_at = left_at + block_at, right_at + block_at, codes_at + 16 * lane, marks_at + 8 * lane
        for r in range(n_rows):
            left[r], right[r] = ZERO, ZERO
        for unit in range(n_whole):
            step(
                left_at + unit * unit_bytes, right_at + unit * unit_bytes, group, codes_at + unit * UNIT, codes_pitch, marks_at + 64 * unit,
                marks_pitch, left, right,
            )
        if n_beyond > 0 and n_rows == 1:
            before = left[0], right[0]
            step(
                left_at + n_whole * unit_bytes, right_at + n_whole * unit_bytes, group, codes_at + n_whole * UNIT, codes_pitch,
                marks_at + 64 * n_whole, marks_pitch, left, right,
            )
            left[0], right[0] = left[0] if lane < n_beyond else before[0], right[0] if lane < n_beyond else before[1]
        if n_beyond > 0 and n_rows > 1 and lane < n_beyond:
            step(
                left_at + n_whole * unit_bytes, right_at + n_whole * unit_bytes, group, codes_at + n_whole * UNIT, codes_pitch,
                marks_at + 64 * n_whole, marks_pitch, left, right,
            )
        for r in range(n_rows):
            left[r], right[r] = tree_of_lanes(left[r]), tree_of_lanes(right[r])

    return multiply


def short_down_part(type_id: int, n_pass: int, n_turns: int, ahead: bool, n_groups: int, target: Target):
    """Build `part(...)`, called as that of `expert_parts.down_part`: TURN_ROWS n_turns rows of down, n_pass > 1."""
    form = FORMATS[type_id]
    moves, listed_entries, stage_row = _fetching(form, n_groups, target), listed_pass(n_pass), row_stager(THREADS, target)
    fetch, commit, wait, wait_all = moves.fetch, moves.commit, moves.wait, moves.wait_all
    pitch, own_bytes = moves.staging.pitch, moves.staging.unit_bytes
    slot_bytes, stride = 8 * pitch, TURN_ROWS * own_bytes
    n_units = (n_groups + 7) // 8
    codes_pitch, marks_pitch, stages_at = n_units * UNIT, n_units * (UNIT_BYTES - UNIT), activation_bytes(n_pass, n_groups)
    one, several = (_row_products(form, n_groups, n, target) for n in (1, n_pass))
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @jit
    def begin(mine, source, left, lane, own_turns):
        """Send the first turns on their way."""
        for turn in range(SLOTS):
            if turn < own_turns:
                fetch(mine + turn * slot_bytes, source + turn * stride, left, lane)
            commit()

    @jit
    def store(left, right, n_here, entry, n, n_out, out):
        for r in range(n_pass):
            if r < n_here:
                at = (np.int64(entry) + r) * n_out + n
                out[at], out[at + SIDE_ROWS] = left[r], right[r]

    @jit
    def part(
        shared, left, right, weights, expert_bytes, row_bytes, n_groups_given, n_out, is_shared, number, first_shared, n_rows, experts, starts,
        n_listed, codes, scales, sums, out,
    ):
        thread = np.int32(cuda.threadIdx.x)
        lane, own = thread & 7, thread >> 3
        first_turn = np.int32(np.int32(cuda.blockIdx.x) * np.int32(n_turns))
        own_turns = min(np.int32(n_turns), np.int32(n_out // TURN_ROWS - first_turn))
        n = np.int32(first_turn * TURN_ROWS + own)
        start = np.int64(n) * own_bytes
        mine = shared + (stages_at + (thread >> 5) * (SLOTS * slot_bytes) + ((thread >> 3) & 3) * pitch)
        entry = np.int32(first_shared + n_pass * number)
        end = min(np.int32(entry + n_pass), np.int32(first_shared + n_rows))
        go_on()
        if not ahead and not is_shared:
            wait_before()
        if not is_shared:
            entry, end, expert = listed_entries(number, experts, starts, n_listed)
            if entry >= end:
                return
            start += np.int64(expert) * expert_bytes
        n_here, before = np.int32(end - entry), np.int32(start & 15)
        source, to = weights + (start - before + 16 * lane), mine + 16 * lane
        bytes_left = np.int32(before + own_bytes - 16 * lane)
        begin(to, source, bytes_left, lane, own_turns)
        if ahead or is_shared:
            wait_before()
        codes_from, scales_from, sums_from = global_address(codes), global_address(scales), global_address(sums)
        for r in range(n_here):
            stage_row(
                shared + r * codes_pitch, shared + (n_pass * codes_pitch + r * marks_pitch), codes_from, scales_from, sums_from,
                np.int32(entry + r), np.int32(n_groups), thread,
            )
        commit()
        wait_all()
        cuda.syncthreads()
        source, slot = source + SLOTS * stride, np.int32(0)
        for turn in range(own_turns):
            if turn > 0:
                wait()
                sync_warp()
            left_at = mine + (slot + before)
            if n_here > 1:
                several(left_at, left_at + 4 * pitch, lane, shared, shared + n_pass * codes_pitch, left, right)
            else:
                one(left_at, left_at + 4 * pitch, lane, shared, shared + n_pass * codes_pitch, left, right)
            sync_warp()
            if turn + SLOTS < own_turns:
                fetch(to + slot, source, bytes_left, lane)
            commit()
            source, slot = source + stride, np.int32(slot_bytes - slot)
            if lane == 0:
                store(left, right, n_here, entry, n, n_out, out)
            n = np.int32(n + TURN_ROWS)

    return part
