"""Cutting grouped entries into tiles on the card.

Entries of the i-th listed expert are starts[i] .. starts[i+1]-1; a tile holds at most `tile_rows` of one expert.  Tiles are
numbered in the order of the list, so their order never depends on timing.  Does not know: how entries were grouped.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.seam import Target, jit, kernel, launch_dependents, wait_for_dependency

TILE_PLAN_THREADS = 512


@jit
def tiles_of(starts, listed, tile_rows):
    """Tiles of the entries of a listed expert."""
    return (starts[listed + 1] - starts[listed] + tile_rows - 1) // tile_rows


@cache
def plan_tiles(target: Target):
    """Return the kernel (tile_rows, n_listed, starts, n_tiles, tile_listed, tile_first): one block of TILE_PLAN_THREADS."""
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @kernel(TILE_PLAN_THREADS)
    def run(tile_rows, n_listed, starts, n_tiles, tile_listed, tile_first):
        go_on()
        wait_before()
        n = n_listed[0]
        for listed in range(cuda.threadIdx.x, n, TILE_PLAN_THREADS):
            before = np.int32(0)
            for other in range(listed):
                before += tiles_of(starts, other, tile_rows)
            own = np.int32(tiles_of(starts, listed, tile_rows))
            for k in range(own):
                tile_listed[before + k] = listed
                tile_first[before + k] = starts[listed] + k * tile_rows
            if listed == n - 1:
                n_tiles[0] = before + own
        if n == 0 and cuda.threadIdx.x == 0:
            n_tiles[0] = 0

    return run
