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
from strata.cuda.attention.staged_reads import FORMATS, StagedLayout, staged_reader
from strata.cuda.attention.tiled_attention_parts import (
    ROWS, arrival, query_arrival, tile_merge, tile_results, tile_scores, tile_softmax, tile_values,
)
from strata.cuda.floats.float_tiles import fits as large_blocks_fit
from strata.cuda.machine.seam import Target, copies, jit, kernel, launch_dependents, wait_for_dependency

MOST_THREADS = 512
"""Threads of a multiprocessor that registers are left for."""
TEAM = 64
LARGEST_HEAD = 256
SHARED_BYTES = 200 * 1024
"""What cards with 227 KB a multiprocessor give a block, less some."""


@dataclass(frozen=True, slots=True)
class TileShape(StagedLayout):
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
        return next(n for n in (6, 5, 4, 3, 2, 1) if self.group % n == 0)

    @property
    def n_queries(self) -> int:
        return ROWS * self.group

    @property
    def n_threads(self) -> int:
        return TEAM * (self.n_queries // self.heads)

    @property
    def pitch(self) -> int:
        """Floats per cell of the softmax weights: even, and two threads a bank at most."""
        return self.n_queries // 2 * 2 + 2

    @property
    def weights_at(self) -> int:
        return self.queries_at + self.n_queries * self.size

    @property
    def tops_at(self) -> int:
        """Floats before maxima, old and new factors of all queries; the rows' counts follow."""
        return self.weights_at + SPLIT * self.pitch

    @property
    def counts_at(self) -> int:
        return self.tops_at + 3 * self.n_queries

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
    read, n_queries, n_warps = staged_reader(shape), shape.n_queries, shape.n_threads // 32
    ask, (fetch_keys, fetch_values) = query_arrival(shape, target), arrival(shape, target)
    scores, (weigh, total_of), accumulate = tile_scores(shape, read), tile_softmax(shape), tile_values(shape, read.values)
    merge, (exchange, store) = tile_merge(shape), tile_results(shape, target)
    is_tile, one_pending, tops_at, counts_at = tile_check(shape.dense), copies(target, 1).wait, shape.tops_at, shape.counts_at
    old_at, new_at, n_dots, n_sums = tops_at + n_queries, tops_at + 2 * n_queries, 8 * heads, 4 * heads
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads, max(1, MOST_THREADS // n_threads))
    def run(
        queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_rows, projected, out,
        gated, codes, turned, scales, sums,
    ):
        shared = cuda.shared.array(0, types.float32)
        row_counts = cuda.shared.array(0, types.int32)
        eight, weights = cuda.local.array(8, np.float32), cuda.local.array(heads, np.float32)
        dots = cuda.local.array(n_dots, np.float32)
        fresh, merged = cuda.local.array(n_sums, np.float32), cuda.local.array(n_sums, np.float32)
        go_on()
        wait_before()
        j, thread = np.int32(cuda.blockIdx.x), np.int32(cuda.threadIdx.x)
        first_row = np.int32((np.int32(cuda.gridDim.y) - 1 - np.int32(cuda.blockIdx.y)) * ROWS)
        if not is_tile(slots, cells, counts, width, first_row, n_rows):
            return
        most = ask(shared, row_counts, queries, positions, counts, first_row, n_rows, j, thread)
        first_vector = np.int64(slots[first_row]) * n_cells * n_kv + j
        n_splits, n = np.int32((most + SPLIT - 1) // SPLIT), min(most, np.int32(SPLIT))
        fetch_keys(shared, k_codes, k_scales, first_vector, n, thread)
        fetch_values(shared, v_codes, v_scales, first_vector, n, thread)
        query, first = (thread >> 5) + n_warps * (thread & 31), (thread >> 6) * heads
        dim = 4 * (thread & (TEAM - 1))
        is_dim = dim < size
        dim = dim if is_dim else np.int32(0)
        running_top = running_total = ZERO
        for s in range(n_splits):
            following = first_vector + np.int64((s + 1) * SPLIT) * n_kv
            n_following = max(np.int32(0), min(np.int32(most - (s + 1) * SPLIT), np.int32(SPLIT)))
            one_pending()
            cuda.syncthreads()
            scores(shared, scale, thread, eight, dots)
            cuda.syncthreads()
            fetch_keys(shared, k_codes, k_scales, following, n_following, thread)
            weigh(shared, row_counts, s, thread)
            one_pending()
            cuda.syncthreads()
            if query < n_queries:
                n = min(np.int32(row_counts[counts_at + query // group] - s * SPLIT), np.int32(SPLIT))
                if n > 0:
                    top, total = shared[tops_at + query], total_of(shared, query, n)
                    if s == 0:
                        running_top, running_total = top, total
                    else:
                        running_top, running_total, old, new = merge_factors(top, total, running_top, running_total)
                        shared[old_at + query], shared[new_at + query] = old, new
            n = min(np.int32(row_counts[counts_at + first // group] - s * SPLIT), np.int32(SPLIT))
            if n > 0:
                accumulate(shared, n, first, dim, eight, weights, fresh)
            cuda.syncthreads()
            fetch_values(shared, v_codes, v_scales, following, n_following, thread)
            merge(shared, s, first, n, fresh, merged)
        cuda.syncthreads()
        if query < n_queries:
            shared[old_at + query] = running_total
        exchange(shared, first, dim, is_dim, merged)
        cuda.syncthreads()
        store(shared, first_row, n_rows, j, thread, projected, out, gated, codes, turned, scales, sums)

    return run
