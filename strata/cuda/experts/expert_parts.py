"""What a block of `expert_products.py` does for one pass of one expert: gate and up to codes, or down, for up to n_pass rows.

Both parts are made per weight format; a launch whose shared expert has another format than the listed ones holds two of each.
Weights whose place is known before the kernel ahead has ended are fetched before: the shared expert's always; for down
`ahead` the listed ones too, since the lists are older than the kernel ahead (gate_up, whose blocks let the next kernel start only
when they have seen the end of the router's).  They are then read past the first-level cache, which may hold older ones.

Does not know: arguments, launches.
"""

from types import SimpleNamespace

import numpy as np
from numba import cuda

from strata.cuda.experts.listed_passes import listed_pass
from strata.cuda.experts.pairs import SIDE_ROWS, THREADS, PairCut, cut_of, pair_fetching, pair_products, slots_of_warp
from strata.cuda.machine.addresses import global_address
from strata.cuda.machine.on_cuda import silu
from strata.cuda.machine.seam import Target, copies, jit, launch_dependents, mul, wait_for_dependency
from strata.cuda.packed.group_codes import group_coder
from strata.cuda.packed.staging import row_stager, staging_of
from strata.formats.contract import WeightFormat
from strata.formats.table import FORMATS

GATE_UP_UNITS, GATE_UP_STAGES, GATE_UP_ROOM = 0, 3, 60 << 10
"""Units and most stages of gate and up, and what the stages of a block may take: three blocks of 4 x 2,560 activations a multiprocessor."""
ONE_ROW_GATE_UP = 0, 3, 60 << 10
"""The same of a window of one row; with four stages of 80 KiB twelve layers of one row took 16 us of 1,070 longer."""
DOWN_UNITS, DOWN_STAGES, DOWN_ROOM = 1, 6, 68 << 10
"""The same of down: rows are short, so that nine tenths of a block's weights are on their way at once."""


def gate_up_cut(form: WeightFormat, n_pass: int) -> PairCut:
    """Return how rows of gate and up are cut, for passes of n_pass rows."""
    return cut_of(form, *(ONE_ROW_GATE_UP if n_pass == 1 else (GATE_UP_UNITS, GATE_UP_STAGES, GATE_UP_ROOM)))


def down_cut(form: WeightFormat, n_pass: int) -> PairCut:
    """Return how rows of down are cut, whatever the pass."""
    return cut_of(form, DOWN_UNITS, DOWN_STAGES, DOWN_ROOM)


def _common(form: WeightFormat, cut: PairCut, n_pass: int, known_groups: int, target: Target) -> SimpleNamespace:
    """Build what both parts share: `places`, `rows_of`, `stage_row`, the copies' ends; the products for one row and for n_pass.

    `known_groups` (0: any number): groups of a row, for which an activation row's copies are written out.
    """
    staging, of_warp = staging_of(form, cut.units), slots_of_warp(form, cut)
    per_stage, stage_bytes, pitch = 8 * staging.units, staging.stage_bytes, staging.pitch
    rows_first, all_done = copies(target, cut.stages - 1), copies(target, 0)

    @jit
    def places(shared, thread, n_groups):
        """Return (codes pitch, where scales and sums lie, their pitch, this thread's first slot, bytes of a row's stages)."""
        n_units = np.int32((n_groups + 7) >> 3)
        codes_pitch, marks_pitch = np.int64(n_units * 256), np.int64(n_units * 64)
        marks = shared + n_pass * codes_pitch
        mine = marks + (n_pass * marks_pitch + ((thread >> 5) * of_warp + ((thread >> 3) & 3) * pitch))
        return codes_pitch, marks, marks_pitch, mine, np.int32((n_groups + per_stage - 1) // per_stage * stage_bytes)

    @jit
    def shared_entries(number, first_shared, n_rows):
        """First entry and end of the shared expert's block `number`: one pass."""
        first = np.int32(first_shared + n_pass * number)
        return first, min(np.int32(first + n_pass), np.int32(first_shared + n_rows))

    return SimpleNamespace(
        places=places, shared_entries=shared_entries, listed_entries=listed_pass(n_pass), stage_row=row_stager(THREADS, target, known_groups), begin=pair_fetching(form, cut, target).begin,
        commit=all_done.commit, wait_rows=rows_first.wait, wait_all=all_done.wait, one=pair_products(form, cut, 1, target),
        several=pair_products(form, cut, n_pass, target),
    )


def gate_up_part(type_id: int, n_pass: int, known_groups: int, target: Target):
    """Build `part(...)`: 32 rows of gate and of up, to a group of codes, for block `number` of the shared expert or of the listed ones.

    Rows of a pass beyond an expert's entries meet whatever lies in shared memory; nobody reads their sums.
    """
    form, code_group = FORMATS[type_id], group_coder(target)
    common = _common(form, gate_up_cut(form, n_pass), n_pass, known_groups, target)
    places, shared_entries, listed_entries, stage_row = common.places, common.shared_entries, common.listed_entries, common.stage_row
    begin, commit = common.begin, common.commit
    wait_rows, wait_all, one, several = common.wait_rows, common.wait_all, common.one, common.several
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @jit
    def part(
        shared, hidden, left, right, left_from, right_from, expert_bytes, row_bytes, n_groups, is_shared, number, first_shared, n_rows, experts,
        starts, n_listed, entry_rows, codes, scales, sums, hidden_codes, hidden_turned, hidden_scales, hidden_sums,
    ):
        thread = np.int32(cuda.threadIdx.x)
        lane, own = thread & 7, thread >> 3
        codes_pitch, marks, marks_pitch, mine, all_bytes = places(shared, thread, n_groups)
        start = np.int64(np.int32(cuda.blockIdx.x) * SIDE_ROWS + own) * row_bytes
        upcoming = (start, start, np.int32(0), np.int32(0))
        if is_shared:
            upcoming = begin(mine, left_from, right_from, start, start, start, np.int64(0), row_bytes, all_bytes, np.int32(1), lane)
        wait_before()
        entry, end = shared_entries(number, first_shared, n_rows)
        if not is_shared:
            entry, end, expert = listed_entries(number, experts, starts, n_listed)
            if entry >= end:
                return
            start += np.int64(expert) * expert_bytes
        n_here = np.int32(end - entry if n_pass > 1 else 1)
        codes_from, scales_from, sums_from = global_address(codes), global_address(scales), global_address(sums)
        for r in range(n_here):
            row = np.int32(entry + r - first_shared) if is_shared else np.int32(0)
            if n_pass > 1 and not is_shared:
                row = np.int32(entry_rows[entry + r])
            stage_row(shared + r * codes_pitch, marks + r * marks_pitch, codes_from, scales_from, sums_from, row, n_groups, thread)
        commit()
        if is_shared:
            go_on()
            wait_all()
        else:
            upcoming = begin(mine, left_from, right_from, start, start, start, np.int64(0), row_bytes, all_bytes, np.int32(1), lane)
            go_on()
            wait_rows()
        cuda.syncthreads()
        if n_pass > 1 and n_here > 1:
            several(
                mine, mine, left_from, right_from, start, start, upcoming, start, np.int64(0), row_bytes, all_bytes, n_groups, np.int32(1), lane,
                shared, marks, codes_pitch, marks_pitch, left, right,
            )
        else:
            one(
                mine, mine, left_from, right_from, start, start, upcoming, start, np.int64(0), row_bytes, all_bytes, n_groups, np.int32(1), lane,
                shared, marks, codes_pitch, marks_pitch, left, right,
            )
        for r in range(n_pass):
            if lane == 0 and r < n_here:
                hidden[r * SIDE_ROWS + own] = mul(silu(left[r]), right[r])
        cuda.syncthreads()
        r = thread >> 5
        if r < n_here:
            place = (np.int64(entry) + r) * np.int32(cuda.gridDim.x) + np.int32(cuda.blockIdx.x)
            code_group(hidden[thread], thread & 31, place, hidden_codes, hidden_turned, hidden_scales, hidden_sums)

    return part


def _storing(n_pass: int):
    """Build `store(left, right, n_here, entry, n, n_out, out)`."""

    @jit
    def store(left, right, n_here, entry, n, n_out, out):
        for r in range(n_pass):
            if r < n_here:
                at = (np.int64(entry) + r) * n_out + n
                if n < n_out:
                    out[at] = left[r]
                if n + SIDE_ROWS < n_out:
                    out[at + SIDE_ROWS] = right[r]

    return store


def down_part(type_id: int, n_pass: int, n_turns: int, ahead: bool, known_groups: int, target: Target):
    """Build `part(...)`: 64 n_turns rows of down for block `number` of the shared expert or of the listed ones."""
    form, store, per_turn = FORMATS[type_id], _storing(n_pass), 2 * SIDE_ROWS
    common = _common(form, down_cut(form, n_pass), n_pass, known_groups, target)
    places, shared_entries, listed_entries, stage_row = common.places, common.shared_entries, common.listed_entries, common.stage_row
    begin, commit = common.begin, common.commit
    wait_rows, wait_all, one, several = common.wait_rows, common.wait_all, common.one, common.several
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @jit
    def part(
        shared, left, right, weights, expert_bytes, row_bytes, n_groups, n_out, is_shared, number, first_shared, n_rows, experts, starts,
        n_listed, codes, scales, sums, out,
    ):
        thread = np.int32(cuda.threadIdx.x)
        lane, own = thread & 7, thread >> 3
        codes_pitch, marks, marks_pitch, mine, all_bytes = places(shared, thread, n_groups)
        first_n = np.int32(cuda.blockIdx.x) * np.int32(n_turns * per_turn)
        own_turns = min(np.int32(n_turns), np.int32((n_out - first_n + per_turn - 1) // per_turn))
        last, stride = np.int64(n_out - 1) * row_bytes, np.int64(row_bytes) * per_turn
        left_first = min(np.int64(first_n + own) * row_bytes, last)
        right_first = min(np.int64(first_n + own + SIDE_ROWS) * row_bytes, last)
        entry, end = shared_entries(number, first_shared, n_rows)
        go_on()
        if not ahead and not is_shared:
            wait_before()
        if not is_shared:
            entry, end, expert = listed_entries(number, experts, starts, n_listed)
            if entry >= end:
                return
            matrix = np.int64(expert) * expert_bytes
            left_first, right_first, last = left_first + matrix, right_first + matrix, last + matrix
        n_here = np.int32(end - entry if n_pass > 1 else 1)
        upcoming = (left_first, right_first, np.int32(0), np.int32(0))
        if ahead or is_shared:
            upcoming = begin(mine, weights, weights, left_first, right_first, last, stride, row_bytes, all_bytes, own_turns, lane)
            wait_before()
        codes_from, scales_from, sums_from = global_address(codes), global_address(scales), global_address(sums)
        for r in range(n_here):
            stage_row(shared + r * codes_pitch, marks + r * marks_pitch, codes_from, scales_from, sums_from, np.int32(entry + r), n_groups, thread)
        commit()
        if ahead or is_shared:
            wait_all()
        else:
            upcoming = begin(mine, weights, weights, left_first, right_first, last, stride, row_bytes, all_bytes, own_turns, lane)
            wait_rows()
        cuda.syncthreads()
        slot, left_start, right_start, n = mine, left_first, right_first, np.int32(first_n + own)
        for turn in range(own_turns):
            if n_pass > 1 and n_here > 1:
                upcoming, slot = several(
                    mine, slot, weights, weights, left_start, right_start, upcoming, last, stride, row_bytes, all_bytes, n_groups, own_turns,
                    lane, shared, marks, codes_pitch, marks_pitch, left, right,
                )
            else:
                upcoming, slot = one(
                    mine, slot, weights, weights, left_start, right_start, upcoming, last, stride, row_bytes, all_bytes, n_groups, own_turns,
                    lane, shared, marks, codes_pitch, marks_pitch, left, right,
                )
            if lane == 0:
                store(left, right, n_here, entry, n, n_out, out)
            n = np.int32(n + per_turn)
            left_start, right_start = min(left_start + stride, last), min(right_start + stride, last)

    return part
