"""Cutting grouped entries into tiles on the card.

Entries of the i-th listed expert are starts[i] .. starts[i+1]-1; a tile holds at most `tile_rows` of one expert.  Tiles are
numbered in the order of the list, so their order never depends on timing.  Does not know: how entries were grouped.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.machine.seam import Target, kernel, launch_dependents, wait_for_dependency

TILE_PLAN_THREADS = 512


@cache
def plan_tiles(target: Target):
    """Return the kernel (tile_rows, n_listed, starts, n_tiles, tile_listed, tile_first): one block of TILE_PLAN_THREADS."""
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @kernel(TILE_PLAN_THREADS)
    def run(tile_rows, n_listed, starts, n_tiles, tile_listed, tile_first):
        counts = cuda.shared.array(TILE_PLAN_THREADS, types.int32)
        go_on()
        wait_before()
        thread, n = np.int32(cuda.threadIdx.x), n_listed[0]
        before = np.int32(0)
        for begin in range(0, n, TILE_PLAN_THREADS):
            listed = np.int32(begin + thread)
            first, own = np.int32(0), np.int32(0)
            if listed < n:
                first = starts[listed]
                own = np.int32((starts[listed + 1] - first + tile_rows - 1) // tile_rows)
            counts[thread] = own
            cuda.syncthreads()
            width = np.int32(1)
            while width < TILE_PLAN_THREADS:
                other = counts[thread - width] if thread >= width else np.int32(0)
                cuda.syncthreads()
                counts[thread] += other
                cuda.syncthreads()
                width = np.int32(2 * width)
            at = np.int32(before + counts[thread] - own)
            for k in range(own):
                tile_listed[at + k] = listed
                tile_first[at + k] = first + k * tile_rows
            before = np.int32(before + counts[TILE_PLAN_THREADS - 1])
            cuda.syncthreads()
        if thread == 0:
            n_tiles[0] = before

    return run
