"""Attention of prompt rows that take all their cells: neighbouring rows share keys and values.

The orders of host/attention.py.  A thread block has ROWS rows of one slot and one K/V head with its group of query heads, and goes
through splits of 64 cells, merging on the way; the next keys are fetched while values are summed and the other way round.  Rows
differ in where their cells end: a team of 64 threads has a few query heads of one row, so each goes as far as its row.

A tile is taken where all its rows have one slot and cells 0 .. count - 1 (`tile_check`); split_attention.py does the other rows.
Flat shapes as in split_attention.py.  Does not know: selection.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.attention.attention_parts import SPLIT, ZERO, merge_factors
from strata.cuda.attention.tile_reads import CELLS, FORMATS, READERS, TileLayout
from strata.cuda.attention.tiled_attention_parts import (
    ROWS, arrival, query_arrival, query_byte, tile_merge, tile_results, tile_scores, tile_softmax, tile_values,
)
from strata.cuda.floats.float_tiles import fits as large_blocks_fit
from strata.cuda.machine.addresses import shared_address, store_shared_float
from strata.cuda.machine.seam import Target, copies, jit, kernel, launch_dependents, load_four_floats, wait_for_dependency

MOST_HEADS = 12
"""Query heads of a team, at most: all of them share what a thread reads of a key or a value, and its conversion."""
MOST_THREADS = 256
"""Threads of a multiprocessor that registers are left for."""
TEAM = 64
MINUS_ZERO, ONE = np.float32(-0.0), np.float32(1)
LARGEST_HEAD = 256
SHARED_BYTES = 200 * 1024
"""What cards with 227 KB a multiprocessor give a block, less some."""


@dataclass(frozen=True, slots=True)
class TileShape(TileLayout):
    """Geometry and variant; `dense` attends to cells 0 .. position.  Places in shared memory count floats."""

    n_q: int
    n_kv: int
    size: int
    kv: str
    dense: bool

    @property
    def group(self) -> int:
        """Query heads of a K/V head."""
        return self.n_q // self.n_kv

    @property
    def heads(self) -> int:
        """Query heads of a team."""
        return next(n for n in range(MOST_HEADS, 0, -1) if self.group % n == 0)

    @property
    def n_queries(self) -> int:
        return ROWS * self.group

    @property
    def n_teams(self) -> int:
        return self.n_queries // self.heads

    @property
    def n_threads(self) -> int:
        return TEAM * self.n_teams

    @property
    def team_pitch(self) -> int:
        """Floats per team of what queries have: whole vectors of four."""
        return (self.heads + 3) // 4 * 4

    @property
    def pitch(self) -> int:
        """Floats per cell of the softmax weights: an odd number of vectors, so that eight neighbouring cells' lie in different banks."""
        return 4 * (self.n_teams * self.team_pitch // 4 | 1)

    @property
    def weights_at(self) -> int:
        return self.queries_at + self.n_queries * self.size

    @property
    def tops_at(self) -> int:
        """Floats before the largest scores of each warp; old and new factors of all queries and the rows' counts follow."""
        return self.weights_at + SPLIT * self.pitch

    @property
    def old_at(self) -> int:
        return self.tops_at + 2 * self.n_teams * self.team_pitch

    @property
    def new_at(self) -> int:
        return self.old_at + self.n_teams * self.team_pitch

    @property
    def counts_at(self) -> int:
        return self.new_at + self.n_teams * self.team_pitch

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.counts_at + ROWS)


def takes(shape: TileShape, capability: tuple[int, int]) -> bool:
    """Whether tiles are made for a geometry and a card of a compute capability."""
    fits = shape.size % 32 == 0 and shape.size <= LARGEST_HEAD and shape.n_threads <= 1024 and shape.shared_bytes <= SHARED_BYTES
    return shape.kv in FORMATS and fits and large_blocks_fit(capability)


def tile_check(dense: bool):
    """Build `is_tile(slots, cells, counts, width, row, n_rows)`: whether the ROWS rows around `row` make a tile."""

    @jit
    def is_tile(slots, cells, counts, width, row, n_rows):
        first = np.int32(row // ROWS * ROWS)
        slot, good = slots[first], True
        for r in range(ROWS):
            own = min(np.int32(first + r), np.int32(n_rows - 1))
            good = good and slots[own] == slot
            if not dense:
                # Ascending cells of which the last is count - 1 are all cells before it.
                last = np.int32(counts[own] - 1)
                good = good and last >= 0 and cells[np.int64(own) * width + max(last, np.int32(0))] == last
        return good

    return is_tile


@cache
def tile_kernel(shape: TileShape, target: Target):
    """Return the kernel; grid (kv_heads, rows / ROWS), shape.n_threads threads; the rows' tiles come last first, as these are longest.

    kernel(queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_rows, projected,
    out, gated, codes, turned, scales, sums).
    """
    n_kv, size, group, heads, n_threads = shape.n_kv, shape.size, shape.group, shape.heads, shape.n_threads
    read, n_queries, counts_at, old_byte, new_byte = READERS[shape.kv](), shape.n_queries, shape.counts_at, 4 * shape.old_at, 4 * shape.new_at
    ask, (fetch_keys, fetch_values) = query_arrival(shape, target), arrival(shape, target)
    (scores, cell_of), (largest, weigh, total_of), accumulate = tile_scores(shape, read), tile_softmax(shape, target), tile_values(shape, read)
    merge, (logits_at, store), place_of = tile_merge(shape), tile_results(shape), query_byte(shape)
    is_tile, one_pending, teams_per_row = tile_check(shape.dense), copies(target, 1).wait, group // heads
    n_codes, n_dots, n_sums, n_weights = 4 * CELLS, 2 * CELLS * heads, 4 * heads, shape.team_pitch
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads, max(1, MOST_THREADS // n_threads))
    def run(
        queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_rows, projected, out,
        gated, codes, turned, scales, sums,
    ):
        shared = cuda.shared.array(0, types.float32)
        row_counts, start = cuda.shared.array(0, types.int32), shared_address(shared)
        values, dots = cuda.local.array(n_codes, np.float32), cuda.local.array(n_dots, np.float32)
        tops, weights = cuda.local.array(heads, np.int32), cuda.local.array(n_weights, np.float32)
        fresh, merged = cuda.local.array(n_sums, np.float32), cuda.local.array(n_sums, np.float32)
        go_on()
        wait_before()
        j, thread = np.int32(cuda.blockIdx.x), np.int32(cuda.threadIdx.x)
        first_row = np.int32((np.int32(cuda.gridDim.y) - 1 - np.int32(cuda.blockIdx.y)) * ROWS)
        if not is_tile(slots, cells, counts, width, first_row, n_rows):
            return
        most = ask(start, row_counts, queries, positions, counts, first_row, n_rows, j, thread)
        first_vector = np.int64(slots[first_row]) * n_cells * n_kv + j
        n_splits, n = np.int32((most + SPLIT - 1) // SPLIT), min(most, np.int32(SPLIT))
        fetch_keys(start, shared, k_codes, k_scales, first_vector, n, thread)
        fetch_values(start, shared, v_codes, v_scales, first_vector, n, thread)
        team, dim, cell = thread >> 6, 4 * (thread & (TEAM - 1)), cell_of(thread)
        is_dim = dim < size
        dim = dim if is_dim else np.int32(0)
        running_top = running_total = ZERO
        for i in range(n_sums):
            merged[i] = ZERO
        cuda.syncthreads()
        left = row_counts[counts_at + team // teams_per_row]
        own_left = row_counts[counts_at + min(thread, np.int32(n_queries - 1)) // group]
        for s in range(n_splits):
            following = first_vector + np.int64((s + 1) * SPLIT) * n_kv
            n_following = max(np.int32(0), min(np.int32(most - (s + 1) * SPLIT), np.int32(SPLIT)))
            n = min(np.int32(left - s * SPLIT), np.int32(SPLIT))
            one_pending()
            cuda.syncthreads()
            scores(start, scale, thread, values, dots)
            largest(start, thread, cell < n, dots, tops)
            cuda.syncthreads()
            fetch_keys(start, shared, k_codes, k_scales, following, n_following, thread)
            weigh(start, thread, cell, dots)
            one_pending()
            cuda.syncthreads()
            if thread < n_queries:
                n_own = min(np.int32(own_left - s * SPLIT), np.int32(SPLIT))
                if n_own > 0:
                    top, total = total_of(start, thread, n_own)
                    # The first split's sums join +0: times -0 that is what adds nothing, whatever the sign of a sum that is zero.
                    old, new = MINUS_ZERO, ONE
                    if s == 0:
                        running_top, running_total = top, total
                    else:
                        running_top, running_total, old, new = merge_factors(top, total, running_top, running_total)
                    store_shared_float(start + old_byte + place_of(thread), old)
                    store_shared_float(start + new_byte + place_of(thread), new)
            if n > 0:
                accumulate(start, n, team, dim, weights, fresh)
            cuda.syncthreads()
            fetch_values(start, shared, v_codes, v_scales, following, n_following, thread)
            if n > 0:
                merge(start, team, fresh, merged)
        row, head = np.int32(first_row + team // teams_per_row), np.int32(j * group + team % teams_per_row * heads)
        gates = load_four_floats(projected, logits_at(min(row, np.int32(n_rows - 1)), head, dim))
        cuda.syncthreads()
        if thread < n_queries:
            store_shared_float(start + old_byte + place_of(thread), running_total)
        cuda.syncthreads()
        if row < n_rows:
            store(start, thread, row, head, dim, is_dim, merged, gates, projected, out, gated, codes, turned, scales, sums)

    return run
