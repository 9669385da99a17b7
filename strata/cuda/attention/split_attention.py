"""Attention over selected cells, in splits of 64 cells that merge in ascending order.

The orders of host/attention.py, with the pieces of attention_parts.py.  A thread block has one row, one K/V head with its group of
query heads, and one split; a few threads of each warp sum the softmax weights in their chains.  Either each split's triple
(maximum, sum, values) is stored and merging.py merges them (few rows: splits run side by side, where they fit by window_attention.py), or one block goes through a
row's splits and merges on the way (many rows, `looped`).  Both merge by the same formula in the same order, so which of them
runs changes no bit.

Flat shapes: queries [rows, heads, D]; codes [slots, cells, kv_heads, D]; cells int32 [rows, width]; counts int32 [rows]; tops,
totals [rows, heads, splits]; triples [rows, heads, splits, D]; out, gated [rows, heads, D].  Does not know: selection.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.attention import merging, tiled_attention
from strata.cuda.attention.attention_parts import SPLIT, ZERO, AttentionShape, column_sum, key_scores, merge_factors, output_gate, softmax, value_sums
from strata.cuda.attention.heads import AttentionCells
from strata.cuda.attention.tiled_attention import tile_check
from strata.cuda.attention.window_attention import StagedShape, heads_of, staged_kernel, takes
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.seam import Target, fma, jit, kernel, launch_dependents, mul, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.memory.window_tables import WindowTables
from strata.cuda.packed.group_codes import arrays_of
from strata.cuda.packed.products import Coded
from strata.model.config import ModelConfig

SHARED_BYTES = 48 * 1024
VALUES_AHEAD = 8
MOST_SIDE_BY_SIDE_ROWS = 32
"""Windows up to this many rows run their splits side by side; wider ones fill a card with rows alone."""


def _split_scores(shape: AttentionShape, target: Target):
    """Build `scores(...)`: the scores of a split's cells, by all threads of the block."""
    stage, score, n_values, n_sums = key_scores(shape, target)
    part, pitch, heads, n_kv = shape.cells_per_part, shape.padded_group, shape.heads_per_thread, shape.n_kv
    weights_at, ids_at = shape.weights_at, shape.ids_at

    @jit
    def scores(shared, ids, k_codes, k_scales, first_vector, n, scale, thread, unpacked, dots):
        cell, first_head = thread & (SPLIT - 1), (thread >> 6) * heads
        for begin in range(0, n, part):
            stage(shared, k_codes, first_vector, ids, begin, min(np.int32(part), np.int32(n - begin)), thread)
            cuda.syncthreads()
            if cell >= begin and cell < begin + part and cell < n:
                vector = first_vector + np.int64(ids[ids_at + cell]) * n_kv
                score(shared, cell - begin, first_head, k_scales, vector, unpacked, dots)
                for h in range(heads):
                    d = 8 * h
                    dot = tree8(dots[d], dots[d + 1], dots[d + 2], dots[d + 3], dots[d + 4], dots[d + 5], dots[d + 6], dots[d + 7])
                    shared[weights_at + cell * pitch + first_head + h] = mul(dot, scale)
            cuda.syncthreads()

    return scores, n_values, n_sums


def _weight_sum(shape: AttentionShape):
    """Build `total_of(shared, h, n)`: the chain over a split's cells, ascending."""
    pitch, weights_at = shape.padded_group, shape.weights_at

    @jit
    def total_of(shared, h, n):
        return column_sum(shared, weights_at + h, pitch, n)

    return total_of


@cache
def attention_kernel(shape: AttentionShape, target: Target, beside_tiles: bool = False):
    """Return the kernel; grid (kv_heads * splits, rows), or (kv_heads, rows) when looped; shape.n_threads threads.

    kernel(queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_splits, tops,
    totals, triples, projected, out, gated, codes, turned, scales, sums): arrays from `projected` on are the looped variant's,
    tops, totals and triples the other's.  `beside_tiles` leaves out the rows that tiled_attention.py does; n_splits is then the
    number of rows.
    """
    n_q, n_kv, size, group, pitch = shape.n_q, shape.n_kv, shape.size, shape.group, shape.padded_group
    dense, looped, n_threads = shape.dense, shape.looped, shape.n_threads
    split_scores, n_values, n_sums = _split_scores(shape, target)
    weigh, accumulate, finish, total_of = softmax(shape), value_sums(shape, VALUES_AHEAD), output_gate(shape, target), _weight_sum(shape)
    n_queries, queries_at, tops_at, ids_at = group * size, shape.queries_at, shape.tops_at, shape.ids_at
    old_at, new_at = tops_at + group, tops_at + 2 * group
    n_warps, dims = n_threads // 32, (size + n_threads - 1) // n_threads
    n_accumulated = dims * pitch
    is_tile = tile_check(dense)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads, 2)
    def run(
        queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_splits, tops,
        totals, triples, projected, out, gated, codes, turned, scales, sums,
    ):
        shared = cuda.shared.array(0, types.float32)
        ids = cuda.shared.array(0, types.int32)
        dots, unpacked = cuda.local.array(n_sums, np.float32), cuda.local.array(n_values, np.float32)
        fresh, merged = cuda.local.array(n_accumulated, np.float32), cuda.local.array(n_accumulated, np.float32)
        ahead = cuda.local.array(VALUES_AHEAD, np.float32)
        go_on()
        wait_before()
        row, thread = np.int32(cuda.blockIdx.y), np.int32(cuda.threadIdx.x)
        j, split = np.int32(cuda.blockIdx.x) % n_kv, np.int32(cuda.blockIdx.x) // n_kv
        count = positions[row] + 1 if dense else counts[row]
        if split * SPLIT >= count or (beside_tiles and is_tile(slots, cells, counts, width, row, n_splits)):
            return
        first_vector = np.int64(slots[row]) * n_cells * n_kv + j
        first_head = np.int64(row) * n_q + j * group
        for i in range(thread, n_queries, n_threads):
            shared[queries_at + i] = queries[first_head * size + i]
        h = (thread >> 5) + n_warps * (thread & 31)
        running_top = running_total = ZERO
        last = np.int32((count + SPLIT - 1) // SPLIT) if looped else np.int32(split + 1)
        for s in range(split, last):
            n = min(np.int32(count - s * SPLIT), np.int32(SPLIT))
            if thread < n:
                ids[ids_at + thread] = s * SPLIT + thread if dense else cells[np.int64(row) * width + s * SPLIT + thread]
            cuda.syncthreads()
            split_scores(shared, ids, k_codes, k_scales, first_vector, n, scale, thread, unpacked, dots)
            weigh(shared, n, thread)
            cuda.syncthreads()
            if h < group:
                top, total = shared[tops_at + h], total_of(shared, h, n)
                if not looped:
                    at = (first_head + h) * n_splits + s
                    tops[at], totals[at] = top, total
                elif s == 0:
                    running_top, running_total = top, total
                else:
                    running_top, running_total, old, new = merge_factors(top, total, running_top, running_total)
                    shared[old_at + h], shared[new_at + h] = old, new
            for d in range(dims):
                dim = thread + d * n_threads
                if dim < size:
                    accumulate(shared, v_codes, v_scales, first_vector, ids, n, dim, fresh, d * pitch, ahead)
                    if not looped:
                        for head in range(group):
                            triples[((first_head + head) * n_splits + s) * size + dim] = fresh[d * pitch + head]
            if looped:
                cuda.syncthreads()
                if s == 0:
                    for i in range(n_accumulated):
                        merged[i] = fresh[i]
                else:
                    for d in range(dims):
                        for head in range(group):
                            i = d * pitch + head
                            merged[i] = fma(fresh[i], shared[new_at + head], mul(merged[i], shared[old_at + head]))
        if looped:
            cuda.syncthreads()
            if h < group:
                shared[old_at + h] = running_total
            cuda.syncthreads()
            for d in range(dims):
                dim = thread + d * n_threads
                if dim < size:
                    for head in range(group):
                        value, total = merged[d * pitch + head], shared[old_at + head]
                        finish(value, total, row, j * group + head, dim, projected, out, gated, codes, turned, scales, sums)

    return run


@dataclass(frozen=True, slots=True, eq=False)
class SplitScratch:
    """Where splits that run side by side leave their triples: tops, totals [heads * most], triples [heads * most * D].

    `most` counts (row, split) pairs that fit.
    """

    most: int
    tops: Any
    totals: Any
    triples: Any


@dataclass(frozen=True, slots=True, eq=False)
class AttentionOutput:
    """projected [rows, heads * 2 D] holds the gates; attended and gated [rows, heads * D] and gated's codes are filled."""

    projected: Any
    attended: Any
    gated: Any
    coded: Coded


def launch_attention(
    device: CudaDevice, config: ModelConfig, window: WindowTables, kv: str, most_cells: int, queries, cells: AttentionCells, chosen,
    counts, width: int, scale, scratch: SplitScratch, output: AttentionOutput, programmatic: bool = False,
) -> tuple[Launch, ...]:
    """Attend to the chosen cells [rows, width], or to all cells 0 .. position where `chosen` is None; gate and code the result.

    `most_cells` is the largest number of cells a row may attend to in this graph's context class.
    """
    dense = chosen is None
    shape = AttentionShape(config.n_q_heads, config.n_kv_heads, config.head_dim, kv, dense, False)
    check(shape)
    n_splits = (most_cells + SPLIT - 1) // SPLIT
    side_by_side = window.n_rows <= MOST_SIDE_BY_SIDE_ROWS and window.n_rows * n_splits <= scratch.most
    shape = shape if side_by_side else replace(shape, looped=True)
    ids, n_ids = (window.slots, window.slots) if dense else (chosen, counts)
    triples = (scratch.tops, scratch.totals, scratch.triples)
    results = (output.projected, output.attended, output.gated, *arrays_of(output.coded))
    asked = (
        queries, cells.k_codes, cells.k_scales, cells.v_codes, cells.v_scales, window.slots, window.positions, ids, n_ids,
        np.int32(width), np.int32(cells.n_cells), np.float32(scale), np.int32(n_splits), *triples,
    )
    if not side_by_side:
        return _row_by_row(device, shape, asked, results, window.n_rows, programmatic)
    staged = StagedShape(shape.n_q, shape.n_kv, shape.size, kv, dense, heads_of(window.n_rows))
    if takes(kv, device.target):
        run, arguments = staged_kernel(staged, device.target), asked
        place = Shape((shape.n_q // staged.group * n_splits, window.n_rows), staged.n_threads, staged.shared_bytes)
    else:
        run, arguments = attention_kernel(shape, device.target), (*asked, *results)
        place = Shape((shape.n_kv * n_splits, window.n_rows), shape.n_threads, shape.shared_bytes)
    split = Launch(device, run, place, arguments, programmatic)
    arguments = (*triples, window.positions, n_ids, np.int32(n_splits), *results)
    place = Shape((merging.grid_of(shape), window.n_rows), 32 * merging.WARPS, merging.SHARED_BYTES)
    return split, Launch(device, merging.merge_kernel(shape, device.target), place, arguments, programmatic)


def _row_by_row(device: CudaDevice, shape: AttentionShape, asked: tuple, results: tuple, n_rows: int, programmatic: bool) -> tuple[Launch, ...]:
    """Tiles of rows that take all their cells, where the card has room for them, and the other rows one by one."""
    tile = tiled_attention.TileShape(shape.n_q, shape.n_kv, shape.size, shape.kv, shape.dense)
    tiled = tiled_attention.takes(tile, device.card.capability)
    asked = (*asked[:12], np.int32(n_rows) if tiled else asked[12], *asked[13:])
    run = attention_kernel(shape, device.target, tiled)
    rows = Launch(device, run, Shape((shape.n_kv, n_rows), shape.n_threads, shape.shared_bytes), (*asked, *results), programmatic)
    if not tiled:
        return (rows,)
    place = Shape((shape.n_kv, -(-n_rows // tiled_attention.ROWS)), tile.n_threads, tile.shared_bytes)
    return Launch(device, tiled_attention.tile_kernel(tile, device.target), place, (*asked[:13], *results), programmatic), rows


def check(shape: AttentionShape) -> None:
    """Raise UsageError where the tiling does not take a geometry."""
    size, group = shape.size, shape.group
    require(size % 32 == 0 and size <= 512, f"head of {size}", "heads of 32 n values up to 512 fit")
    fits = shape.shared_bytes <= SHARED_BYTES and shape.n_threads <= 1024
    require(fits, f"{group} query heads of {size}", "a group's queries must fit into shared memory")
