"""The end of a tile: its eight lanes meet in the tree of the contract, and the sums are stored.

A warp's lane lies in shared memory as [value / wide][thread][wide]; `wide` is 4, the values of one tensor-core product, where there are
enough of them for all warps.  Does not know: products.
"""

import numpy as np
from numba import cuda

from strata.cuda.machine.addresses import (
    global_address, shared_float, shared_four_floats, store_global_float, store_shared_float, store_shared_four_floats,
)
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.seam import jit
from strata.cuda.packed.tiles import Layout, Tile
from strata.numerics.orders import EIGHT


def lane_sums(step: int, wide: int):
    """Build `meet(at)`: the sums of eight lanes that lie `step` bytes apart; of `wide` values, or one sum four times."""

    @jit
    def lane_of(at, which):
        if wide == 4:
            return shared_four_floats(at + which * step)
        value = shared_float(at + which * step)
        return value, value, value, value

    @jit
    def meet(at):
        a, b, c, d = lane_of(at, 0), lane_of(at, 1), lane_of(at, 2), lane_of(at, 3)
        e, f, g, h = lane_of(at, 4), lane_of(at, 5), lane_of(at, 6), lane_of(at, 7)
        return (
            tree8(a[0], b[0], c[0], d[0], e[0], f[0], g[0], h[0]), tree8(a[1], b[1], c[1], d[1], e[1], f[1], g[1], h[1]),
            tree8(a[2], b[2], c[2], d[2], e[2], f[2], g[2], h[2]), tree8(a[3], b[3], c[3], d[3], e[3], f[3], g[3], h[3]),
        )

    return meet


@jit
def store_value(at, total, is_wanted):
    if is_wanted:
        store_global_float(at, total)


def lanes_meeting(tile: Tile, layout: Layout):
    """Build `finish(meeting_at, lanes, thread, warp, which, first_output, n_out, count, first_entry, out)`.

    `meeting_at`: shared memory that nobody else uses; whoever calls has met the other warps since the last call.
    """
    bands, columns, n_warps, per_warp, at_once = tile.bands, tile.columns, tile.warps_per_set, tile.lanes_per_warp, layout.columns_at_once
    per_pass, per_lane = 4 * at_once * bands, 4 * columns * bands
    wide = 4 if per_pass // 4 % n_warps == 0 else 1
    share, step, set_bytes = per_pass // wide // n_warps, 128 * per_pass, EIGHT * 128 * per_pass
    meet = lane_sums(step, wide)

    @jit
    def put(at, lanes, v):
        if wide == 4:
            store_shared_four_floats(at, lanes[v], lanes[v + 1], lanes[v + 2], lanes[v + 3])
        else:
            store_shared_float(at, lanes[v])

    @jit
    def store(v, totals, begin, thread, first_output, n_out, count, first_entry, out):
        """Values v .. of this thread; value 0 of a product is of the first row and output, 1 of the next row, 2 and 3 eight outputs on."""
        column, band = begin + v // (4 * bands), (v // 4) % bands
        row, n = np.int32(8 * column + 2 * (thread & 3)), np.int32(first_output + 16 * band + (thread >> 2))
        at = global_address(out) + 4 * (np.int64(np.int32(first_entry + row)) * n_out + n)
        if wide == 1:
            own_row, own_n = np.int32(row + (v & 1)), np.int32(n + 8 * ((v >> 1) & 1))
            store_value(at + 4 * (n_out * np.int64(v & 1) + 8 * ((v >> 1) & 1)), totals[0], own_row < count and own_n < n_out)
        else:
            below = at + 4 * np.int64(n_out)
            store_value(at, totals[0], row < count and n < n_out)
            store_value(below, totals[1], row + 1 < count and n < n_out)
            store_value(at + 32, totals[2], row < count and n + 8 < n_out)
            store_value(below + 32, totals[3], row + 1 < count and n + 8 < n_out)

    @jit
    def finish(meeting_at, lanes, thread, warp, which, first_output, n_out, count, first_entry, out):
        place = meeting_at + (which * set_bytes + 4 * wide * thread)
        for begin in range(0, columns, at_once):
            if begin:
                cuda.syncthreads()
            for e in range(per_warp):
                for v in range(0, per_pass, wide):
                    if 4 * begin * bands + v < per_lane:
                        put(place + ((per_warp * warp + e) * step + 128 * v), lanes, e * per_lane + 4 * begin * bands + v)
            cuda.syncthreads()
            for s in range(share):
                v = np.int32(wide * (warp * share + s))
                if columns % at_once == 0 or 4 * begin * bands + v < per_lane:
                    store(v, meet(place + 128 * v), begin, thread, first_output, n_out, count, first_entry, out)

    return finish
