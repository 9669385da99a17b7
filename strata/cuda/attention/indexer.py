"""Block scores of the sparse attention's indexer.

The orders of host/indexer.py: a dot product is eight lanes (eight neighbouring threads), a block's score a chain over heads of
max(0, dot) with the comparison written out.  A thread block scores 256 key blocks of one row (32 in windows of few rows); thread blocks beyond the row's
own blocks leave at once, and so do rows whose cells all fit into the selection.  Pooled keys are made by heads.py, cells are
chosen by selection.py.  Flat shapes: queries [rows, Ni, Di], pooled [slots, blocks, Di], scores [rows, most_blocks].
Does not know: selection, attention.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.seam import Target, add, fma, from_bits, jit, kernel, launch_dependents, load_word, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.machine.warps import sum_eight
from strata.cuda.memory.window_tables import WindowTables
from strata.model.config import ModelConfig

ZERO = np.float32(0.0)
THREADS = 256
BLOCKS_PER_PASS = THREADS // 8
PASSES, WINDOW_PASSES = 8, 1
"""Passes of a thread block: a wide window reads a row's queries once for many key blocks, a narrow one spreads over the card."""
MOST_SPREAD_ROWS = 8
LARGEST_QUERY = 1024


@jit
def float_at(array, byte):
    """A float32 at a byte offset: constant parts of the offset fold into the load."""
    return from_bits(np.int32(load_word(array, byte)))


@jit
def _as_it_is(query, pooled, at, total):
    return total


@cache
def scores_kernel(n_heads: int, size: int, block: int, width: int, passes: int, target: Target):
    """Return kernel(queries, pooled, slots, positions, n_blocks, most_blocks, scores); grid (most_blocks / (BLOCKS_PER_PASS * passes), rows)."""
    per_lane = size // 8
    n_query, per_grid = n_heads * per_lane, BLOCKS_PER_PASS * passes
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    def heads_from(h):
        """Build the chain of heads h, h + 1, ...: a loop around exchanges would not be unrolled for every card."""
        if h == n_heads:
            return _as_it_is
        following, first = heads_from(h + 1), h * per_lane

        @jit
        def step(query, pooled, at, total):
            lane_sum = ZERO
            for m in range(per_lane):
                lane_sum = fma(query[first + m], float_at(pooled, at + 32 * m), lane_sum)
            dot = sum_eight(lane_sum)
            total = add(total, dot if dot > ZERO or dot != dot else ZERO)
            return following(query, pooled, at, total)

        return step

    score = heads_from(0)

    @kernel(THREADS, 2)
    def run(queries, pooled, slots, positions, n_blocks, most_blocks, scores):
        query = cuda.local.array(n_query, np.float32)
        go_on()
        wait_before()
        row = np.int32(cuda.blockIdx.y)
        n_cells = positions[row] + 1
        n_here = n_cells // block
        first = np.int32(cuda.blockIdx.x) * per_grid
        if n_cells <= width or first >= n_here:
            return
        thread = np.int32(cuda.threadIdx.x)
        lane, own = thread & 7, thread >> 3
        own_query = 4 * (np.int64(row) * n_heads * size + lane)
        for h in range(n_heads):
            for m in range(per_lane):
                query[h * per_lane + m] = float_at(queries, own_query + 4 * (h * size + 8 * m))
        home = np.int64(slots[row]) * n_blocks
        for turn in range(passes):
            warp_first = first + turn * BLOCKS_PER_PASS + (thread >> 5) * 4
            if warp_first < n_here:
                b = first + turn * BLOCKS_PER_PASS + own
                inside = b < n_here
                value = score(query, pooled, 4 * ((home + (b if inside else n_here - 1)) * size + lane), ZERO)
                if lane == 0 and inside:
                    scores[np.int64(row) * most_blocks + b] = value

    return run


def launch_scores(
    device: CudaDevice, config: ModelConfig, window: WindowTables, queries, pooled, n_blocks: int, most_blocks: int, scores,
    programmatic: bool = False,
) -> Launch:
    """scores [rows, most_blocks] of the complete blocks of rows that have more cells than the selection takes.

    `most_blocks` is the largest number of complete blocks in the context class of the window's graph.
    """
    n_heads, size = config.n_indexer_heads, config.indexer_dim
    require(size % 8 == 0 and n_heads * size <= LARGEST_QUERY, f"indexer {n_heads} x {size}", f"{LARGEST_QUERY} values of a query fit")
    passes = WINDOW_PASSES if window.n_rows <= MOST_SPREAD_ROWS else PASSES
    run = scores_kernel(n_heads, size, config.indexer_block, config.selection_width, passes, device.target)
    arguments = (queries, pooled, window.slots, window.positions, np.int32(n_blocks), np.int32(most_blocks), scores)
    per_grid = BLOCKS_PER_PASS * passes
    grid = ((most_blocks + per_grid - 1) // per_grid, window.n_rows)
    return Launch(device, run, Shape(grid, THREADS), arguments, programmatic)
