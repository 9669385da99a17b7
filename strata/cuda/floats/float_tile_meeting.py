"""Which rows and outputs of a float tile a thread has, and how its sums meet those of others: the tree's levels 16 to 1.

Of a thread's place in its warp, bit 0 and 2 choose its outputs, bit 1 its rows, bits 3 and 4 its residue: neighbours have the same rows, threads
two apart the same outputs, so that a read of 16 bytes takes two passes of shared memory where it else takes four.  The levels 16 and 8
join the four residues of a warp (each step hands half of a thread's sums over), the levels 4, 2, 1 the eight warps, in shared memory.  Threads that keep the second half of their rows or outputs have it first, so that nothing is selected.

    widened_place(thread)                        where the first of a thread's four widened weights goes in a step's weights, the others 128 bytes apart
    read_places(thread)                          where a thread's rows (two pieces of four) and outputs (two pieces) of its residue lie in a step
    meet(at, thread, sums)                       the levels 16 and 8; then every warp's part goes to shared memory at `at`
    store_tile(at, thread, first_row, first_output, n_rows, n_out, out)
                                                 the levels 4 to 1; a thread has two neighbouring outputs of one row

Does not know: products.
"""

import numpy as np

from strata.cuda.floats.float_tile_parts import residue_of, shared_float, x_place
from strata.cuda.machine.addresses import store_shared_float
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.seam import add, exchange_float, jit


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


@jit
def _weight_place(element, piece):
    """Byte of four outputs' values of an element in a step's weights: residues 8 apart, whose threads have other pieces first, lie in different
    halves of the banks."""
    return np.int32(128 * element + 16 * (piece ^ (((element >> 2) & 1) | ((element >> 3) & 2) | ((element >> 1) & 4))))


@jit
def widened_place(thread):
    return np.int32(_weight_place(4 * (thread & 7), thread >> 5) + 4 * ((thread >> 3) & 3))


@jit
def read_places(thread):
    t, ty, tx = residue_of(thread), (thread >> 1) & 1, (thread & 1) | ((thread >> 1) & 2)
    odd, last = (thread >> 3) & 1, (thread >> 4) & 1
    return x_place(t, ty + 2 * odd), x_place(t, ty + 2 - 2 * odd), _weight_place(t, tx + 4 * last), _weight_place(t, tx + 4 - 4 * last)


@jit
def _place_of(lane, o, r):
    """Byte of a lane's value of output o and row r (0 .. 3 each) in its warp's part: a warp's reads meet no bank twice."""
    return 4 * (lane ^ (2 * (r & 1)) ^ (4 * (o & 2))) + 128 * (4 * o + r)


@jit
def meet(at, thread, sums):
    for v in range(32):
        sums[v] = add(sums[v], exchange_float(sums[v + 32], np.int32(16)))
    for o in range(4):
        for r in range(4):
            sums[4 * o + r] = add(sums[8 * o + r], exchange_float(sums[8 * o + r + 4], np.int32(8)))
    to, lane = at + 2048 * (thread >> 5), thread & 31
    for o in range(4):
        for r in range(4):
            store_shared_float(to + _place_of(lane, o, r), sums[4 * o + r])


@jit
def store_tile(at, thread, first_row, first_output, n_rows, n_out, out):
    pair, own_row = thread & 15, thread >> 4
    o, r, piece, row_piece = 2 * (pair & 1), own_row & 3, pair >> 1, own_row >> 2
    lane = (piece & 1) | (2 * (row_piece & 1)) | (2 * (piece & 2)) | (8 * (row_piece >> 1)) | (16 * (piece >> 2))
    place = at + _place_of(lane, o, r)
    row, n = np.int32(first_row + own_row), np.int32(first_output + 2 * pair)
    _store(_total(place), _total(place + 512), row, n, n_rows, n_out, out)
