"""Which rows and outputs of a float tile a thread has, and how its sums meet those of others: the tree's levels 16 to 1.

The levels 16 and 8 join the four residues of a warp (each step hands half of a thread's sums over), the levels 4, 2, 1 the eight warps, in
shared memory.  Two ways, of the same bits:

    in order      all threads of a warp have their rows and outputs in the same order, and select which half of their sums they keep
    kept first    threads that keep the second half have it first: nothing is selected

    widened_place(thread)                        where the first of a thread's four widened weights goes in a step's weights, the others 128 bytes apart
    read_places(thread)                          where a thread's rows (two pieces of four) and outputs (two pieces) of its residue lie in a step
    meet(at, thread, sums)                       the levels 16 and 8; then every warp's part goes to shared memory at `at`
    store_tile(at, thread, first_row, first_output, n_rows, n_out, out)
                                                 the levels 4 to 1; a thread has two neighbouring outputs of one row

Does not know: products.
"""

from types import SimpleNamespace

import numpy as np

from strata.cuda.floats.float_tile_parts import residue_of, shared_float, x_place
from strata.cuda.machine.addresses import store_shared_float
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.seam import add, exchange_float, jit

KEEP_FIRST = False
"""Whether the second way is taken."""


def meeting() -> SimpleNamespace:
    """Return the helpers of the way that is taken."""
    return _kept_first() if KEEP_FIRST else _in_order()


@jit
def _total(place):
    """The levels 4, 2 and 1: one sum of the eight warps."""
    return tree8(
        shared_float(place), shared_float(place + 2048), shared_float(place + 4096), shared_float(place + 6144),
        shared_float(place + 8192), shared_float(place + 10240), shared_float(place + 12288), shared_float(place + 14336),
    )


@jit
def _store(first, second, row, n, n_rows, n_out, out):
    if row < n_rows:
        to = np.int64(row) * n_out + n
        if n < n_out:
            out[to] = first
        if n + 1 < n_out:
            out[to + 1] = second


def _widener(weight_place):
    """Build `widened_place(thread)` for a place of pieces."""

    @jit
    def widened_place(thread):
        return np.int32(weight_place(4 * (thread & 7), thread >> 5) + 4 * ((thread >> 3) & 3))

    return widened_place


def _in_order() -> SimpleNamespace:
    @jit
    def weight_place(element, piece):
        """Byte of four outputs' values of an element in a step's weights."""
        return np.int32(128 * element + 16 * (piece ^ ((element >> 2) & 7)))

    @jit
    def read_places(thread):
        t, ty, tx = residue_of(thread), (thread >> 2) & 1, (thread >> 3) & 3
        return x_place(t, ty), x_place(t, ty + 2), weight_place(t, tx), weight_place(t, tx + 4)

    @jit
    def meet(at, thread, sums):
        upper = (thread & 2) != 0
        for v in range(32):
            given, kept = sums[v] if upper else sums[v + 32], sums[v + 32] if upper else sums[v]
            sums[v] = add(kept, exchange_float(given, np.int32(2)))
        upper = (thread & 1) != 0
        for v in range(16):
            given, kept = sums[v] if upper else sums[v + 16], sums[v + 16] if upper else sums[v]
            sums[v] = add(kept, exchange_float(given, np.int32(1)))
        to = at + 4 * (512 * (thread >> 5) + (thread & 31))
        for v in range(16):
            store_shared_float(to + 128 * v, sums[v])

    @jit
    def store_tile(at, thread, first_row, first_output, n_rows, n_out, out):
        ty, tx, o, r = (thread >> 2) & 1, (thread >> 3) & 3, 2 * (thread & 3), thread >> 5
        row = np.int32(first_row + 4 * (ty + 2 * (r >> 2)) + (r & 3))
        n = np.int32(first_output + 4 * (tx + 4 * (o >> 2)) + (o & 3))
        place = at + 4 * (32 * r + (thread & 31))
        _store(_total(place), _total(place + 1024), row, n, n_rows, n_out, out)

    return SimpleNamespace(widened_place=_widener(weight_place), read_places=read_places, meet=meet, store_tile=store_tile)


def _kept_first() -> SimpleNamespace:
    @jit
    def weight_place(element, piece):
        """As above; residues 8 apart, whose threads have other pieces first, lie in different halves of the banks."""
        return np.int32(128 * element + 16 * (piece ^ (((element >> 2) & 1) | ((element >> 3) & 2) | ((element >> 1) & 4))))

    @jit
    def read_places(thread):
        t, ty, tx, odd, last = residue_of(thread), (thread >> 2) & 1, (thread >> 3) & 3, thread & 1, (thread >> 1) & 1
        return x_place(t, ty + 2 * odd), x_place(t, ty + 2 - 2 * odd), weight_place(t, tx + 4 * last), weight_place(t, tx + 4 - 4 * last)

    @jit
    def place_of(lane, o, r):
        """Byte of a lane's value of output o and row r (0 .. 3 each) in its warp's part: a warp's reads meet no bank twice."""
        return 4 * (lane ^ (r & 1) ^ (2 * (o & 2))) + 128 * (4 * o + r)

    @jit
    def meet(at, thread, sums):
        for v in range(32):
            sums[v] = add(sums[v], exchange_float(sums[v + 32], np.int32(2)))
        for o in range(4):
            for r in range(4):
                sums[4 * o + r] = add(sums[8 * o + r], exchange_float(sums[8 * o + r + 4], np.int32(1)))
        to, lane = at + 2048 * (thread >> 5), thread & 31
        for o in range(4):
            for r in range(4):
                store_shared_float(to + place_of(lane, o, r), sums[4 * o + r])

    @jit
    def store_tile(at, thread, first_row, first_output, n_rows, n_out, out):
        pair, own_row = thread & 15, thread >> 4
        o, r, piece, row_piece = 2 * (pair & 1), own_row & 3, pair >> 1, own_row >> 2
        place = at + place_of((row_piece >> 1) | (2 * (piece >> 2)) | (4 * (row_piece & 1)) | (8 * (piece & 3)), o, r)
        row, n = np.int32(first_row + own_row), np.int32(first_output + 2 * pair)
        _store(_total(place), _total(place + 512), row, n, n_rows, n_out, out)

    return SimpleNamespace(widened_place=_widener(weight_place), read_places=read_places, meet=meet, store_tile=store_tile)
