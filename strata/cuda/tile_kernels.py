"""The kernels around `tiles.py`: one matrix, or listed experts, times any number of activation rows.

A block's warps share each stage of weights and codes; see tiles.py for the order.  Does not know: routers, layers.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.on_cuda import tree8
from strata.cuda.seam import Target, jit, kernel, launch_dependents, wait_for_dependency
from strata.cuda.staging import staging_of
from strata.cuda.tiles import COLUMNS_AT_ONCE, Tile, ZERO, _copier, _group_products, layout_of
from strata.formats.table import FORMATS


def _finish(tile):
    """Build `finish(...)`: the eight warps' lanes of a tile meet in the tree, and the sums are stored."""
    bands, columns, sets = tile.bands, tile.columns, tile.sets
    at_once = min(columns, COLUMNS_AT_ONCE)
    per_pass = 4 * at_once * bands
    share = per_pass // 8 if per_pass >= 8 else 1

    @jit
    def finish(meeting, lanes, thread, warp, which, first_output, n_out, count, first_entry, out):
        place = np.int32(which * 8 * per_pass * 32)
        for begin in range(0, columns, at_once):
            cuda.syncthreads()
            for v in range(per_pass):
                meeting[place + (warp * per_pass + v) * 32 + thread] = lanes[4 * begin * bands + v]
            cuda.syncthreads()
            for s in range(share):
                v = np.int32(warp * share + s)
                at = place + v * 32 + thread
                if v < per_pass:
                    total = tree8(
                        meeting[at], meeting[at + per_pass * 32], meeting[at + 2 * per_pass * 32],
                        meeting[at + 3 * per_pass * 32], meeting[at + 4 * per_pass * 32], meeting[at + 5 * per_pass * 32],
                        meeting[at + 6 * per_pass * 32], meeting[at + 7 * per_pass * 32],
                    )
                    column, band = begin + v // (4 * bands), (v // 4) % bands
                    row = np.int32(8 * column + 2 * (thread & 3) + (v & 1))
                    n = np.int32(first_output + 16 * band + 8 * ((v >> 1) & 1) + (thread >> 2))
                    if row < count and n < n_out:
                        out[np.int64(first_entry + row) * n_out + n] = total

    return finish


def _tile_product(form, tile, target):
    """Build `product(...)`: the whole tile of one block."""
    layout, staging = layout_of(form.type_id, tile), staging_of(form, tile.units)
    fetch, commit, wait = _copier(form, tile, layout, target)
    multiply, finish = _group_products(form, tile, layout, target), _finish(tile)
    bands, columns, stages, units = tile.bands, tile.columns, tile.stages, tile.units
    n_rows, stage_slot, pitch = tile.n_rows, layout.stage_bytes, layout.pitch
    codes_at, code_pitch, scales_at, sums_at = layout.codes_at, layout.code_pitch, layout.scales_at, layout.sums_at
    groups_per_block, block_bytes = staging.groups_per_block, form.block_bytes
    unit_bytes, stage_bytes = staging.unit_bytes, staging.stage_bytes
    per_set, own_mask = 16 * bands, np.int32(16 * bands - 1)
    n_lanes, n_values, n_words, n_halves = 4 * bands * columns, 16 * bands, 4 * bands, 2 * bands

    @jit
    def product(
        shared, meeting, raw, matrix, row_bytes, n_groups, n_out, output, row, first_output, count, first_entry,
        codes, scales, sums, out,
    ):
        """`output` is the matrix row that this thread copies, `row` the activation row."""
        thread = np.int32(cuda.threadIdx.x)
        warp, in_warp = (thread >> 5) & 7, thread & 31
        which = thread >> 8
        start = matrix + np.int64(output) * row_bytes
        end = start + row_bytes
        n_stages = np.int32((n_groups + 8 * units - 1) // (8 * units))
        for stage in range(stages - 1):
            if stage < n_stages:
                fetch(shared, np.int32(stage * stage_slot), stage, thread, raw, start, end, row, n_groups, codes, scales, sums)
            commit()
        lanes = cuda.local.array(n_lanes, np.float32)
        for v in range(n_lanes):
            lanes[v] = ZERO
        values = cuda.local.array(n_values, np.float32)
        words = cuda.local.array(n_words, np.int32)
        row_at = cuda.local.array(n_halves, np.int32)
        own = np.int32(per_set * which + (in_warp & own_mask))
        last = np.int64(n_out - 1)
        own_start = matrix + min(np.int64(first_output + own), last) * row_bytes
        block_at, group = np.int32((warp // groups_per_block) * block_bytes), warp % groups_per_block
        slot, ahead = np.int32(0), np.int32((stages - 1) * stage_slot)
        for stage in range(n_stages):
            wait()
            cuda.syncthreads()
            coming = np.int32(stage + stages - 1)
            if coming < n_stages:
                fetch(shared, ahead, coming, thread, raw, start, end, row, n_groups, codes, scales, sums)
            commit()
            moved = np.int64(stage) * stage_bytes
            own_at = np.int32(slot + own * pitch + np.int32((own_start + moved) & 15) + block_at)
            for half in range(n_halves):
                r = np.int32(per_set * which + 8 * half + (in_warp >> 2))
                begin = matrix + min(np.int64(first_output + r), last) * row_bytes + moved
                row_at[half] = np.int32(slot + r * pitch + np.int32(begin & 15) + block_at)
            for unit in range(units):
                if np.int32(8 * (stage * units + unit) + warp) < n_groups:
                    g = np.int32(8 * unit + warp)
                    multiply(
                        shared, own_at, row_at, group, in_warp, np.int32(slot + codes_at + 32 * g),
                        np.int32(slot + scales_at + 4 * n_rows * g), np.int32(slot + sums_at + 4 * n_rows * g),
                        count, values, words, lanes,
                    )
                own_at = np.int32(own_at + unit_bytes)
                for half in range(n_halves):
                    row_at[half] = np.int32(row_at[half] + unit_bytes)
            slot = np.int32(slot + stage_slot) if slot < (stages - 1) * stage_slot else np.int32(0)
            ahead = np.int32(ahead + stage_slot) if ahead < (stages - 1) * stage_slot else np.int32(0)
        finish(meeting, lanes, in_warp, warp, which, np.int32(first_output + per_set * which), n_out, count, first_entry, out)

    return product


@cache
def dense_tiles(type_id: int, tile: Tile, target: Target):
    """Return the kernel for one matrix; grid (output tiles, row tiles), tile.n_threads threads.

    kernel(raw, row_bytes, n_groups, n_out, n_rows, codes, scales, sums, out).
    """
    product = _tile_product(FORMATS[type_id], tile, target)
    n_outputs, n_tile_rows = tile.n_outputs, tile.n_rows
    per_output, per_row = tile.n_threads // tile.n_outputs, tile.n_threads // tile.n_rows
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @kernel(tile.n_threads, tile.min_blocks)
    def run(raw, row_bytes, n_groups, n_out, n_rows, codes, scales, sums, out):
        shared = cuda.shared.array(0, types.uint8)
        meeting = cuda.shared.array(0, types.float32)
        go_on()
        wait_before()
        thread = np.int32(cuda.threadIdx.x)
        first_output = np.int32(cuda.blockIdx.x) * n_outputs
        first = np.int32(cuda.blockIdx.y) * n_tile_rows
        count = min(np.int32(n_tile_rows), np.int32(n_rows - first))
        output = min(np.int32(first_output + thread // per_output), np.int32(n_out - 1))
        row = np.int32(first + min(np.int32(thread // per_row), np.int32(count - 1)))
        product(
            shared, meeting, raw, np.int64(0), row_bytes, n_groups, n_out, output, row, np.int32(first_output), count,
            np.int32(first), codes, scales, sums, out,
        )

    return run


@cache
def expert_tiles(type_id: int, tile: Tile, target: Target):
    """Return the kernel for tiles of listed experts; grid (output tiles, most tiles), tile.n_threads threads.

    kernel(raw, expert_bytes, row_bytes, n_groups, n_out, n_tiles, tile_listed, tile_first, experts, starts, entry_rows,
    codes, scales, sums, out): tile t holds entries tile_first[t] .. of the listed expert tile_listed[t], tile.n_rows at most.
    """
    product = _tile_product(FORMATS[type_id], tile, target)
    n_outputs, n_tile_rows = tile.n_outputs, tile.n_rows
    per_output, per_row = tile.n_threads // tile.n_outputs, tile.n_threads // tile.n_rows
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @kernel(tile.n_threads, tile.min_blocks)
    def run(
        raw, expert_bytes, row_bytes, n_groups, n_out, n_tiles, tile_listed, tile_first, experts, starts, entry_rows,
        codes, scales, sums, out,
    ):
        shared = cuda.shared.array(0, types.uint8)
        meeting = cuda.shared.array(0, types.float32)
        go_on()
        wait_before()
        which = cuda.blockIdx.y
        if which >= n_tiles[0]:
            return
        thread = np.int32(cuda.threadIdx.x)
        first_output = np.int32(cuda.blockIdx.x) * n_outputs
        listed, first = tile_listed[which], tile_first[which]
        count = min(np.int32(n_tile_rows), np.int32(starts[listed + 1] - first))
        output = min(np.int32(first_output + thread // per_output), np.int32(n_out - 1))
        row = entry_rows[first + min(np.int32(thread // per_row), np.int32(count - 1))]
        product(
            shared, meeting, raw, np.int64(experts[listed]) * expert_bytes, row_bytes, n_groups, n_out, output, row,
            np.int32(first_output), count, first, codes, scales, sums, out,
        )

    return run
