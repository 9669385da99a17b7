"""How a block of the tile kernels brings a stage into shared memory: weight rows, code rows, and the rows' marks (scales and sums).

Where the target has bulk copies, and rows of the format begin at multiples of 16 bytes, each warp sends some whole rows, one instruction a row,
and a barrier in the stage counts their bytes; else threads copy pieces of 16 bytes.  Marks of a row come in pieces of 16 bytes where the
row's number of groups allows it and the tile is no window's, else in words.  A place in shared memory is written by copies of one kind only.

`moves_of(form, tile, layout, target)` gives, for all threads of a block:
    set_up(shared), take_down(shared)      before the first stage; when stages are read no more, and memory is used otherwise
    weights(slot, weights, matrix, row_bytes, first_output, last_output, stage, thread)      a tile's rows
    rows(slot, first_group, count, codes, scales, sums, stage, n_groups, thread)      first_group: the first one of the row that this
        thread copies (`Tile.row_copiers` threads a row); of `count` rows
    common(n)     an int32 that a warp's threads have in common, so told that the compiler knows it: bulk copies take one operand a warp
    landed(slot, parity)     behind it, what bulk copies brought can be read; what others did behind the wait for the thread's own copies

Does not know: products, which rows a tile has.
"""

from types import SimpleNamespace

import numpy as np
from numba import cuda

from strata.cuda.machine.addresses import copy_series, global_address
from strata.cuda.machine.bulk import arrive, bulk_copy, set_up, take_down, wait_for_bytes
from strata.cuda.machine.seam import Target, jit, shuffle_int
from strata.cuda.packed.staging import rows_are_aligned, staging_of, weight_fetcher
from strata.cuda.packed.tiles import Layout, Tile
from strata.formats.contract import WeightFormat
from strata.numerics.orders import EIGHT

WARP = 32
NO_ROWS, YES = np.int32(0), np.int32(1)


def is_bulk(form: WeightFormat, tile: Tile, target: Target) -> bool:
    """Whether a tile's rows come by bulk copies: on cards that have them, but for windows, of formats whose rows begin at multiples of 16.

    Of others every copy has its own beginning and length: experts in Q2_0 and Q4_0 were 8 to 16 % slower with bulk copies on an H200.
    """
    return target.bulk_copies and tile.columns > 1 and tile.row_copiers <= WARP and rows_are_aligned(form)


def mark_copier(form: WeightFormat, tile: Tile, layout: Layout, target: Target):
    """Build `copy(slot, own, part, first_group, scales, sums, stage, n_groups)`: one row's marks.

    own: the row in the tile; part: this thread's place among those that copy it; rows with n_groups 0 are not copied.
    """
    per_row, n_staged = tile.row_copiers, EIGHT * staging_of(form, tile.units).units
    n_pieces, is_wide = n_staged // 4, tile.columns > 1
    marks_at, mark_pitch, uses_sums = layout.marks_at, layout.mark_pitch, form.has_offset
    copy_pieces = copy_series(16, max(1, n_pieces // per_row), 16 * per_row, 16 * per_row, 16 * per_row, target)
    copy_words = copy_series(4, max(1, n_staged // per_row), 4 * per_row, 4 * per_row, 4 * per_row, target)

    @jit
    def copy(slot, own, part, first_group, scales, sums, stage, n_groups):
        done = np.int32(stage * n_staged)
        to, source = slot + (marks_at + own * mark_pitch), 4 * np.int64(np.int32(first_group + done))
        left = np.int32(4 * (n_groups - done))
        if is_wide and n_groups & 3 == 0:
            if n_pieces >= per_row or part < n_pieces:
                copy_pieces(to + 16 * part, global_address(scales) + (source + 16 * part), np.int32(left - 16 * part))
                if uses_sums:
                    copy_pieces(to + (16 * part + 4 * n_staged), global_address(sums) + (source + 16 * part), np.int32(left - 16 * part))
        elif n_staged >= per_row or part < n_staged:
            copy_words(to + 4 * part, global_address(scales) + (source + 4 * part), np.int32(left - 4 * part))
            if uses_sums:
                copy_words(to + (4 * part + 4 * n_staged), global_address(sums) + (source + 4 * part), np.int32(left - 4 * part))

    return copy


def _by_pieces(form: WeightFormat, tile: Tile, layout: Layout, target: Target) -> SimpleNamespace:
    staging, marks = staging_of(form, tile.units), mark_copier(form, tile, layout, target)
    copiers, per_row, ragged = tile.copiers, tile.row_copiers, 0 if rows_are_aligned(form) else 15
    fetch, pitch, stage_bytes = weight_fetcher(staging, copiers, target), staging.pitch, staging.stage_bytes
    n_pieces, codes_at, code_pitch = 16 * staging.units, layout.codes_at, layout.code_pitch
    copy_codes = copy_series(16, max(1, n_pieces // per_row), 16 * per_row, 16 * per_row, 16 * per_row, target)

    @jit
    def nothing(shared):
        return

    @jit
    def common(n):
        return n

    @jit
    def landed(slot, parity):
        return

    @jit
    def weights_of(slot, weights, matrix, row_bytes, first_output, last_output, stage, thread):
        own, part = np.int32(thread // copiers), np.int32(thread % copiers)
        start = matrix + np.int64(min(np.int32(first_output + own), last_output)) * row_bytes
        before = np.int32(start & ragged)
        piece = np.int32((before + stage * stage_bytes) & -16) + 16 * part
        fetch(slot + (own * pitch + 16 * part), weights + (start - before + piece), np.int32(before + row_bytes - piece), part)

    @jit
    def rows(slot, first_group, count, codes, scales, sums, stage, n_groups, thread):
        own, part = np.int32(thread // per_row), np.int32(thread % per_row)
        there = np.int32(n_groups if own < count else NO_ROWS)
        done = np.int32(stage * n_pieces // 2)
        if n_pieces >= per_row or part < n_pieces:
            source = 32 * np.int64(np.int32(first_group + done)) + 16 * part
            copy_codes(
                slot + (codes_at + own * code_pitch + 16 * part), global_address(codes) + source, np.int32(32 * (there - done) - 16 * part)
            )
        marks(slot, own, part, first_group, scales, sums, stage, there)

    return SimpleNamespace(set_up=nothing, take_down=nothing, weights=weights_of, rows=rows, common=common, landed=landed)


def _in_bulk(form: WeightFormat, tile: Tile, layout: Layout, target: Target) -> SimpleNamespace:
    staging, marks = staging_of(form, tile.units), mark_copier(form, tile, layout, target)
    per_row, n_staged = tile.row_copiers, EIGHT * staging.units
    own_outputs, own_rows = WARP // tile.copiers, WARP // per_row
    pieces, pitch, stage_bytes = staging.pieces, staging.pitch, staging.stage_bytes
    codes_at, code_pitch, barrier_at = layout.codes_at, layout.code_pitch, layout.barrier_at
    stages, slot_bytes, n_arrivals = tile.stages, layout.stage_bytes, np.int32(2 * tile.n_threads // WARP)

    @jit
    def begin(shared):
        if cuda.threadIdx.x == 0:
            for stage in range(stages):
                set_up(shared + (stage * slot_bytes + barrier_at), n_arrivals)
        cuda.syncthreads()

    @jit
    def end(shared):
        if cuda.threadIdx.x == 0:
            for stage in range(stages):
                take_down(shared + (stage * slot_bytes + barrier_at))
        cuda.syncthreads()

    @jit
    def common(n):
        return shuffle_int(n, NO_ROWS)

    @jit
    def landed(slot, parity):
        wait_for_bytes(slot + barrier_at, parity)

    @jit
    def weights_of(slot, weights, matrix, row_bytes, first_output, last_output, stage, thread):
        own = np.int32(own_outputs * common(np.int32(thread // WARP)))
        to, barrier, begin = slot + own * pitch, slot + barrier_at, np.int32(stage * stage_bytes)
        n_bytes = np.int32(16 * min(np.int32(pieces), np.int32((row_bytes - begin + 15) >> 4)))
        for i in range(own_outputs):
            start = matrix + np.int64(min(np.int32(first_output + own + i), last_output)) * row_bytes
            bulk_copy(to + i * pitch, weights + (start + begin), n_bytes, barrier, YES)
        arrive(barrier, np.int32(own_outputs * n_bytes))

    @jit
    def rows(slot, first_group, count, codes, scales, sums, stage, n_groups, thread):
        own = np.int32(own_rows * common(np.int32(thread // WARP)))
        to, barrier = slot + (codes_at + own * code_pitch), slot + barrier_at
        done = np.int32(stage * n_staged)
        n_bytes = np.int32(32 * min(np.int32(n_staged), np.int32(n_groups - done)))
        there = min(max(np.int32(count - own), NO_ROWS), np.int32(own_rows))
        for i in range(own_rows):
            group = np.int64(np.int32(shuffle_int(first_group, np.int32(i * per_row)) + done))
            bulk_copy(to + i * code_pitch, global_address(codes) + 32 * group, n_bytes, barrier, np.int32(i < there))
        arrive(barrier, np.int32(there * n_bytes))
        copied = np.int32(thread // per_row)
        marks(slot, copied, np.int32(thread % per_row), first_group, scales, sums, stage, np.int32(n_groups if copied < count else NO_ROWS))

    return SimpleNamespace(set_up=begin, take_down=end, weights=weights_of, rows=rows, common=common, landed=landed)


def moves_of(form: WeightFormat, tile: Tile, layout: Layout, target: Target) -> SimpleNamespace:
    """Build the helpers of a tile's stages; see the module's docstring."""
    return (_in_bulk if is_bulk(form, tile, target) else _by_pieces)(form, tile, layout, target)
