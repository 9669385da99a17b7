"""The kernels of tiled products: one matrix, or listed experts, times any number of activation rows.

A block's warps share each stage of weights and codes; see tiles.py for the order.  Shapes as in rows.py; tiles of listed
experts: tile_listed, tile_first int32 [n_tiles].  Does not know: routers, layers.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.addresses import global_address, shared_address
from strata.cuda.seam import Target, copies, jit, kernel, launch_dependents, shuffle_int, wait_for_dependency
from strata.cuda.staging import staging_of, weight_fetcher
from strata.cuda.tile_parts import NOTHING, PER_ROW, ZERO, group_products, lanes_meeting, row_copier
from strata.cuda.tiles import Tile, layout_of
from strata.formats.contract import WeightFormat
from strata.formats.table import FORMATS


@jit
def kept(number, in_warp):
    """Return a number by way of an exchange with oneself: the compiler then keeps it instead of computing it again."""
    return np.int64(shuffle_int(np.int32(number), in_warp))


def tile_product(form: WeightFormat, tile: Tile, target: Target, early: bool = False):
    """Build `product(...)`: the whole tile of one block.

    With `early` it lets the next kernel start and waits for the previous one, behind its first weights.
    """
    layout, staging = layout_of(form.type_id, tile), staging_of(form, tile.units)
    fetch_rows, fetch_weights = row_copier(form, tile, layout, target), weight_fetcher(staging, tile.copiers, target)
    move = copies(target, tile.stages - 2)
    commit, wait, wait_all = move.commit, move.wait, copies(target, 0).wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    unpack, gather, multiply = group_products(form, tile, layout, target)
    finish = lanes_meeting(tile)
    stages, units, per_warp, n_halves = tile.stages, staging.units, tile.lanes_per_warp, 2 * tile.bands
    n_lanes, n_values, n_words = 4 * tile.bands * tile.columns * per_warp, PER_ROW * n_halves, 2 * n_halves
    per_lane, per_set, threads_per_set = 4 * tile.bands * tile.columns, 16 * tile.bands, 32 * tile.warps_per_set
    n_rows, slot_bytes, pitch = tile.n_rows, layout.stage_bytes, layout.pitch
    codes_at, code_pitch, scales_at, sums_at = layout.codes_at, layout.code_pitch, layout.scales_at, layout.sums_at
    groups_per_block, block_bytes = staging.groups_per_block, form.block_bytes
    unit_bytes, stage_bytes, is_aligned = staging.unit_bytes, staging.stage_bytes, form.block_bytes % 16 == 0
    last_slot = (stages - 1) * slot_bytes
    copiers_per_row, copiers, two_each = tile.n_threads // tile.n_rows, tile.copiers, tile.rows_per_thread == 2

    @jit
    def product(raw, matrix, row_bytes, n_groups, n_out, first_output, row, count, first_entry, codes, scales, sums, out):
        """`matrix`: first byte of the matrix; `row`: the activation row that this thread copies."""
        meeting = cuda.shared.array(0, types.float32)
        shared, weights = shared_address(cuda.shared.array(0, types.uint8)), global_address(raw)
        thread = np.int32(cuda.threadIdx.x)
        which, in_warp = thread // threads_per_set, thread & 31
        warp, j = (thread // 32) % (threads_per_set // 32), thread & 3
        last = np.int32(n_out - 1)
        start = matrix + np.int64(min(np.int32(first_output + thread // copiers), last)) * row_bytes
        before = np.int32(start & 15)
        part = thread % copiers
        own_slot = shared + ((thread // copiers) * pitch + 16 * part)
        copied, copier = thread // copiers_per_row, thread % copiers_per_row
        row_codes = global_address(codes) + np.int64(row) * n_groups * 32
        row_scales = global_address(scales) + np.int64(row) * n_groups * 4
        row_sums = global_address(sums) + np.int64(row) * n_groups * 4
        n_stages = np.int32((n_groups + 8 * units - 1) // (8 * units))
        for stage in range(stages - 1):
            if stage < n_stages:
                piece = np.int32((before + stage * stage_bytes) & -16) + 16 * part
                fetch_weights(own_slot + stage * slot_bytes, weights + (start - before + piece), np.int32(before + row_bytes - piece), part)
                if not early:
                    fetch_rows(shared + stage * slot_bytes, copied, copier, row_codes, row_scales, row_sums, np.int32(stage), n_groups)
            commit()
        if early:
            go_on()
            wait_before()
            for stage in range(stages - 1):
                if stage < n_stages:
                    fetch_rows(shared + stage * slot_bytes, copied, copier, row_codes, row_scales, row_sums, np.int32(stage), n_groups)
            commit()
            wait_all()
        lanes = cuda.local.array(n_lanes, np.float32)
        for v in range(n_lanes):
            lanes[v] = ZERO
        values, words = cuda.local.array(n_values, np.float32), cuda.local.array(n_words, np.int32)
        behind, low_bits = cuda.local.array(n_halves, np.int64), cuda.local.array(n_halves, np.int32)
        own = np.int32(per_set * which + in_warp % per_set)
        own_lane = per_warp * warp + in_warp // per_set
        own_block, own_group = (own_lane // groups_per_block) * block_bytes + own * pitch, own_lane % groups_per_block
        own_low = np.int32((matrix + np.int64(min(np.int32(first_output + own), last)) * row_bytes) & 15)
        more_low = np.int32((matrix + np.int64(min(np.int32(first_output + own + 32), last)) * row_bytes) & 15)
        for half in range(n_halves):
            r = np.int32(per_set * which + 8 * half + (in_warp >> 2))
            low_bits[half] = np.int32((matrix + np.int64(min(np.int32(first_output + r), last)) * row_bytes) & 15)
        rows_from = (per_set * which + (in_warp >> 2)) * pitch
        codes_from = kept(codes_at + (in_warp >> 2) * code_pitch + 4 * j + 32 * per_warp * warp, in_warp)
        marks_from = kept(8 * j + 4 * n_rows * per_warp * warp, in_warp)
        slot, ahead = shared + 0, shared + last_slot
        for stage in range(n_stages):
            wait()
            cuda.syncthreads()
            coming = np.int32(stage + stages - 1)
            if coming < n_stages:
                piece = np.int32((before + coming * stage_bytes) & -16) + 16 * part
                fetch_weights(ahead + (own_slot - shared), weights + (start - before + piece), np.int32(before + row_bytes - piece), part)
                fetch_rows(ahead, copied, copier, row_codes, row_scales, row_sums, coming, n_groups)
            commit()
            moved = np.int32(stage * stage_bytes)
            own_at, more_at, rows_at = slot + own_block, slot + (own_block + 32 * pitch), slot + rows_from
            if not is_aligned:
                own_at, more_at = own_at + ((own_low + moved) & 15), more_at + ((more_low + moved) & 15)
            for half in range(n_halves):
                behind[half] = 8 * half * pitch + (0 if is_aligned else (low_bits[half] + moved) & 15)
            for unit in range(units):
                scales_own = scales_more = unpack(NOTHING, own_at + unit * unit_bytes, own_group)
                if two_each:
                    scales_more = unpack(NOTHING, more_at + unit * unit_bytes, own_group)
                for e in range(per_warp):
                    lane = per_warp * warp + e
                    if np.int32(8 * (stage * units + unit) + lane) < n_groups:
                        gather(scales_own, scales_more, (in_warp >> 2) + per_set * e, values)
                        multiply(
                            rows_at + ((lane // groups_per_block) * block_bytes + unit * unit_bytes), behind,
                            lane % groups_per_block, j,
                            slot + codes_from + (256 * unit + 32 * e), slot + marks_from + (scales_at + 4 * n_rows * (8 * unit + e)),
                            slot + marks_from + (sums_at + 4 * n_rows * (8 * unit + e)), count, values, words, lanes, e * per_lane,
                        )
            slot = slot + slot_bytes if slot < shared + last_slot else shared + 0
            ahead = ahead + slot_bytes if ahead < shared + last_slot else shared + 0
        finish(meeting, lanes, in_warp, warp, which, np.int32(first_output + per_set * which), n_out, count, first_entry, out)

    return product


@cache
def dense_tiles(type_id: int, tile: Tile, target: Target):
    """Return the kernel for one matrix; grid (output tiles, row tiles), tile.n_threads threads.

    kernel(raw, row_bytes, n_groups, n_out, n_rows, codes, scales, sums, out).
    """
    product = tile_product(FORMATS[type_id], tile, target, early=True)
    n_outputs, n_tile_rows, per_row = tile.n_outputs, tile.n_rows, tile.n_threads // tile.n_rows

    @kernel(tile.n_threads, tile.min_blocks)
    def run(raw, row_bytes, n_groups, n_out, n_rows, codes, scales, sums, out):
        thread = np.int32(cuda.threadIdx.x)
        first = np.int32(np.int32(cuda.blockIdx.y) * n_tile_rows)
        count = min(np.int32(n_tile_rows), np.int32(n_rows - first))
        row = np.int32(first + min(np.int32(thread // per_row), np.int32(count - 1)))
        first_output = np.int32(np.int32(cuda.blockIdx.x) * n_outputs)
        product(raw, np.int64(0), row_bytes, n_groups, n_out, first_output, row, count, first, codes, scales, sums, out)

    return run


@cache
def joined_tiles(type_id: int, tile: Tile, target: Target):
    """Return the kernel for up to three matrices of one format, times up to tile.n_rows rows; missing ones have 0 outputs.

    kernel(raw_0, raw_1, raw_2, row_bytes, n_groups, n_out_0, n_out_1, n_out_2, n_rows, codes, scales, sums, out_0, out_1, out_2);
    the grid is the output tiles of all matrices.
    """
    product = tile_product(FORMATS[type_id], tile, target, early=True)
    n_outputs, per_row = tile.n_outputs, tile.n_threads // tile.n_rows

    @kernel(tile.n_threads, tile.min_blocks)
    def run(
        raw_0, raw_1, raw_2, row_bytes, n_groups, n_out_0, n_out_1, n_out_2, n_rows, codes, scales, sums, out_0, out_1, out_2
    ):
        block = np.int32(cuda.blockIdx.x)
        row = min(np.int32(np.int32(cuda.threadIdx.x) // per_row), np.int32(n_rows - 1))
        first_1 = np.int32((n_out_0 + n_outputs - 1) // n_outputs)
        first_2 = np.int32(first_1 + (n_out_1 + n_outputs - 1) // n_outputs)
        raw, n_out, out = raw_0, n_out_0, out_0
        if block >= first_2:
            block, raw, n_out, out = np.int32(block - first_2), raw_2, n_out_2, out_2
        elif block >= first_1:
            block, raw, n_out, out = np.int32(block - first_1), raw_1, n_out_1, out_1
        first_output = np.int32(block * n_outputs)
        product(raw, np.int64(0), row_bytes, n_groups, n_out, first_output, row, n_rows, np.int32(0), codes, scales, sums, out)

    return run


@cache
def expert_tiles(type_id: int, tile: Tile, target: Target):
    """Return the kernel for tiles of listed experts; grid (output tiles, most tiles), tile.n_threads threads.

    kernel(raw, expert_bytes, row_bytes, n_groups, n_out, n_tiles, tile_listed, tile_first, experts, starts, entry_rows,
    codes, scales, sums, out): tile t holds entries tile_first[t] .. of the listed expert tile_listed[t], tile.n_rows at most.
    """
    product = tile_product(FORMATS[type_id], tile, target)
    n_outputs, n_tile_rows, per_row = tile.n_outputs, tile.n_rows, tile.n_threads // tile.n_rows
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @kernel(tile.n_threads, tile.min_blocks)
    def run(
        raw, expert_bytes, row_bytes, n_groups, n_out, n_tiles, tile_listed, tile_first, experts, starts, entry_rows,
        codes, scales, sums, out,
    ):
        wait_before()
        which = cuda.blockIdx.y
        if which >= n_tiles[0]:
            return
        thread = np.int32(cuda.threadIdx.x)
        listed, first = tile_listed[which], tile_first[which]
        count = min(np.int32(n_tile_rows), np.int32(starts[listed + 1] - first))
        row = entry_rows[first + min(np.int32(thread // per_row), np.int32(count - 1))]
        first_output = np.int32(np.int32(cuda.blockIdx.x) * n_outputs)
        matrix = np.int64(experts[listed]) * expert_bytes
        product(raw, matrix, row_bytes, n_groups, n_out, first_output, row, count, first, codes, scales, sums, out)
        go_on()

    return run
