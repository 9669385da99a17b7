"""The kernels of tiled products: one matrix, or listed experts, times any number of activation rows.

A block's warps share each stage of weights and codes; see tiles.py for the order.  Shapes as in rows.py; tiles of listed
experts: tile_listed, tile_first int32 [n_tiles].  Does not know: routers, layers.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.machine.addresses import global_address, shared_address
from strata.cuda.machine.seam import Target, copies, jit, kernel, launch_dependents, wait_for_dependency
from strata.cuda.packed.dealing import matrix_of_block
from strata.cuda.packed.staging import staging_of
from strata.cuda.packed.tile_meeting import lanes_meeting
from strata.cuda.packed.tile_moves import moves_of
from strata.cuda.packed.tile_parts import ZERO, lift_of
from strata.cuda.packed.tile_stages import stage_products
from strata.cuda.packed.tiles import Tile, layout_of
from strata.formats.contract import WeightFormat
from strata.formats.table import FORMATS


def tile_product(form: WeightFormat, tile: Tile, target: Target, early: bool = False):
    """Build `product(...)`: tiles of one block, one after the other, of the same activation rows and successive output rows.

    Stages are copied ahead across the end of a tile; several tiles have at least `stages` - 1 stages each.  With `early` the next
    kernel may start, and the previous one is waited for, behind the first weights.
    """
    layout, staging = layout_of(form.type_id, tile), staging_of(form, tile.units)
    moves, move = moves_of(form, tile, layout, target), copies(target, tile.stages - 2)
    set_up, take_down, fetch_weights, fetch_rows, landed = moves.set_up, moves.take_down, moves.weights, moves.rows, moves.landed
    common, commit, wait, wait_all = moves.common, move.commit, move.wait, copies(target, 0).wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    compute, finish, lifted = stage_products(form, tile, layout, target), lanes_meeting(tile, layout), lift_of(tile)
    stages, units, n_outputs = tile.stages, staging.units, tile.n_outputs
    n_lanes, n_halves = 4 * tile.bands * tile.columns * tile.lanes_per_warp, 2 * tile.bands
    n_low = n_halves + 2
    per_set, threads_per_set = 16 * tile.bands, 32 * tile.warps_per_set
    slot_bytes, last_slot, meeting_at, in_turn = layout.stage_bytes, (stages - 1) * layout.stage_bytes, layout.meeting_at, tile.turns > 1

    @jit
    def product(raw, matrix, row_bytes, n_groups, n_out, first_output, n_tiles, row, count, first_entry, codes, scales, sums, out):
        """`matrix`: first byte of the matrix; `row`: the activation row that this thread copies."""
        shared, weights = shared_address(cuda.shared.array(0, types.uint8)), global_address(raw)
        thread = np.int32(cuda.threadIdx.x)
        which, in_warp = thread // threads_per_set, thread & 31
        warp = (thread // 32) % (threads_per_set // 32)
        last, first_group = np.int32(n_out - 1), np.int32(row * n_groups)
        n_stages = np.int32((n_groups + 8 * units - 1) // (8 * units))
        left, coming, output = np.int32(n_tiles * n_stages), np.int32(0), np.int32(first_output)
        set_up(shared)
        for stage in range(stages - 1):
            if stage < n_stages:
                fetch_weights(shared + stage * slot_bytes, weights, matrix, row_bytes, np.int32(first_output), last, np.int32(stage), thread)
                if not early:
                    fetch_rows(shared + stage * slot_bytes, first_group, count, codes, scales, sums, np.int32(stage), n_groups, thread)
                left, coming = np.int32(left - 1), np.int32(coming + 1)
            commit()
        if early:
            go_on()
            wait_before()
            for stage in range(stages - 1):
                if stage < n_stages:
                    fetch_rows(shared + stage * slot_bytes, first_group, count, codes, scales, sums, np.int32(stage), n_groups, thread)
            commit()
            wait_all()
        lanes, same = cuda.local.array(n_lanes, np.float32), lifted(in_warp)
        low_bits = cuda.local.array(n_low, np.int32)
        slot, parity = np.int32(0), np.int32(0)
        for number in range(n_tiles):
            for v in range(n_lanes):
                lanes[v] = ZERO
            tile_output = np.int32(first_output + number * n_outputs)
            for half in range(n_low):
                r = 8 * half + (in_warp >> 2) if half < n_halves else in_warp % per_set + 32 * (half - n_halves)
                n = np.int32(tile_output + per_set * which + r)
                low_bits[half] = np.int32((matrix + np.int64(min(n, last)) * row_bytes) & 15)
            for stage in range(n_stages):
                wait()
                cuda.syncthreads()
                if left > 0:
                    if coming == n_stages:
                        coming, output = np.int32(0), np.int32(output + n_outputs)
                    ahead = common(np.int32(slot - slot_bytes if slot > 0 else last_slot))
                    fetch_weights(shared + ahead, weights, matrix, row_bytes, output, last, coming, thread)
                    fetch_rows(shared + ahead, first_group, count, codes, scales, sums, coming, n_groups, thread)
                    left, coming = np.int32(left - 1), np.int32(coming + 1)
                commit()
                landed(shared + slot, parity)
                compute(shared + slot, np.int32(stage), n_groups, count, which, warp, in_warp, low_bits, same, lanes)
                parity = np.int32(parity if slot < last_slot else parity ^ 1)
                slot = np.int32(slot + slot_bytes if slot < last_slot else 0)
            if not in_turn:
                cuda.syncthreads()
                take_down(shared)
            finish(shared + meeting_at, lanes, in_warp, warp, which, np.int32(tile_output + per_set * which), n_out, count, first_entry, out)

    return product


def tiles_from(tile: Tile):
    """Build `tiles_of(first_output, n_out, turns)`: how many output tiles a block has, `turns` at most."""
    n_outputs = tile.n_outputs

    @jit
    def tiles_of(first_output, n_out, turns):
        return min(np.int32(turns), np.int32((n_out - first_output + n_outputs - 1) // n_outputs))

    return tiles_of


@cache
def dense_tiles(type_id: int, tile: Tile, target: Target):
    """Return the kernel for one matrix; grid (output tiles / turns, row tiles), tile.n_threads threads.

    kernel(raw, row_bytes, n_groups, n_out, n_rows, turns, codes, scales, sums, out): a block computes `turns` output tiles in turn.
    """
    product, tiles_of = tile_product(FORMATS[type_id], tile, target, early=True), tiles_from(tile)
    n_outputs, n_tile_rows, per_row = tile.n_outputs, tile.n_rows, tile.row_copiers

    @kernel(tile.n_threads, tile.min_blocks)
    def run(raw, row_bytes, n_groups, n_out, n_rows, turns, codes, scales, sums, out):
        thread = np.int32(cuda.threadIdx.x)
        first = np.int32(np.int32(cuda.blockIdx.y) * n_tile_rows)
        count = min(np.int32(n_tile_rows), np.int32(n_rows - first))
        row = np.int32(first + min(np.int32(thread // per_row), np.int32(count - 1)))
        first_output = np.int32(np.int32(cuda.blockIdx.x) * turns * n_outputs)
        n_tiles = tiles_of(first_output, n_out, turns)
        product(raw, np.int64(0), row_bytes, n_groups, n_out, first_output, n_tiles, row, count, first, codes, scales, sums, out)

    return run


@cache
def joined_tiles(type_id: int, tile: Tile, target: Target):
    """Return the kernel for up to three matrices of one format, times up to tile.n_rows rows; missing ones have 0 outputs.

    kernel(raw_0, raw_1, raw_2, row_bytes, n_groups, n_out_0, n_out_1, n_out_2, n_rows, codes, scales, sums, out_0, out_1, out_2);
    the grid is the output tiles of all matrices.
    """
    product = tile_product(FORMATS[type_id], tile, target, early=True)
    n_outputs, per_row = tile.n_outputs, tile.row_copiers

    @kernel(tile.n_threads, tile.min_blocks)
    def run(
        raw_0, raw_1, raw_2, row_bytes, n_groups, n_out_0, n_out_1, n_out_2, n_rows, codes, scales, sums, out_0, out_1, out_2
    ):
        row = min(np.int32(np.int32(cuda.threadIdx.x) // per_row), np.int32(n_rows - 1))
        block, raw, n_out, out = matrix_of_block(np.int32(0), n_outputs, raw_0, raw_1, raw_2, n_out_0, n_out_1, n_out_2, out_0, out_1, out_2)
        first_output = np.int32(block * n_outputs)
        product(
            raw, np.int64(0), row_bytes, n_groups, n_out, first_output, np.int32(1), row, n_rows, np.int32(0), codes, scales, sums, out
        )

    return run


@cache
def expert_tiles(type_id: int, tile: Tile, target: Target):
    """Return the kernel for tiles of listed experts; grid (output tiles / turns, most tiles), tile.n_threads threads.

    kernel(raw, expert_bytes, row_bytes, n_groups, n_out, turns, n_tiles, tile_listed, tile_first, experts, starts, entry_rows,
    codes, scales, sums, out): tile t holds entries tile_first[t] .. of the listed expert tile_listed[t], tile.n_rows at most.
    """
    product, tiles_of = tile_product(FORMATS[type_id], tile, target), tiles_from(tile)
    n_outputs, n_tile_rows, per_row = tile.n_outputs, tile.n_rows, tile.row_copiers
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @kernel(tile.n_threads, tile.min_blocks)
    def run(
        raw, expert_bytes, row_bytes, n_groups, n_out, turns, n_tiles, tile_listed, tile_first, experts, starts, entry_rows,
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
        first_output = np.int32(np.int32(cuda.blockIdx.x) * turns * n_outputs)
        matrix, of_block = np.int64(experts[listed]) * expert_bytes, tiles_of(first_output, n_out, turns)
        product(raw, matrix, row_bytes, n_groups, n_out, first_output, of_block, row, count, first, codes, scales, sums, out)
        go_on()

    return run
