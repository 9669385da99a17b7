"""Where a float tile of 16 rows x 32 outputs lies in shared memory, how it gets there and is read, and how its sums meet: short rows.

Lane = t + 32 j.  A thread has one residue t (t = warp + 8 r, r the two upper bits of its place in the warp) of 8 rows x 8 outputs.  A step is
32 neighbouring elements of a row, one a residue: floats [element][row] and [element][output], in pieces of four that are swapped so
that neither copies (8 elements x 4 rows at once) nor reads meet a bank twice.  Of a thread's place in its warp, bits 0 and 2 choose
its outputs, bit 1 its rows, bits 3 and 4 its residue: neighbours have the same rows, threads two apart the same outputs, so that a
read of 16 bytes takes two passes of shared memory where it else takes four.  The tree's levels 16 and 8 join the four residues of
a warp (each hands half of a thread's sums over), the levels 4, 2, 1 the eight warps, in shared memory.  Threads that keep the
second half of their rows or outputs have it first, so that nothing is selected.

    row_copier(...), copied_row(thread), copy_places(thread)    a thread copies two values of a step of one row
    widened_output(thread), widened_place(thread)               it widens four neighbouring weights of one output, 128 bytes apart in a step
    read_places(thread)                                         its rows (two pieces of four) and outputs (two pieces) in a step
    meet(at, thread, sums)                                      the levels 16 and 8; then every warp's part goes to shared memory at `at`
    store_tile(...)                                             the levels 4 to 1; a thread has two neighbouring outputs of one row

Shapes as in float_rows.py.  Does not know: how many steps there are.
"""

import numpy as np

from strata.cuda.floats.float_tile_steps import PARKED_BYTES
from strata.cuda.machine.addresses import copy_series, shared_float, store_shared_float
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.seam import Target, add, exchange_float, jit

ROWS, OUTPUTS, STEP = 16, 32, 32
"""Rows and outputs of a tile, elements of a step."""
X_BYTES, WEIGHT_BYTES = 4 * STEP * ROWS, 4 * STEP * OUTPUTS
MEETING_BYTES = PARKED_BYTES // 4


@jit
def x_place(element, piece):
    """Byte of four rows' values of an element (0..31) in a step's activations."""
    slot = element ^ ((element >> 3) & 1)
    return np.int32(64 * slot + 16 * (piece ^ (((element >> 1) ^ (element >> 3)) & 3)))


def row_copier(n_steps: int, step_bytes: int, elements: int, target: Target):
    """Build `copy(to, places, source, element, n_in)`: n_steps steps, `elements` apart, of a tile's activations.

    A thread copies two values of a step: element 8 c + (thread mod 8) of one row, c and c + 2; those beyond n_in are left out.
    """
    series = copy_series(4, n_steps, step_bytes, 4 * elements, elements, target)

    @jit
    def copy(to, places, source, element, n_in):
        """`places`: this thread's two places; source: address of element 0 of its row; element: the step's first."""
        low, high, own = places
        left = np.int32(n_in - element - own)
        series(to + low, source + 4 * (element + own), left)
        series(to + high, source + 4 * (element + own + 16), np.int32(left - 16))

    return copy


@jit
def copied_row(thread):
    """The row of a tile that a thread copies values of."""
    return np.int32(4 * ((thread >> 5) & 3) + ((thread >> 3) & 3))


@jit
def copy_places(thread):
    """A thread's two places in a step's activations, and its first element."""
    own = np.int32(8 * (thread >> 7) + (thread & 7))
    piece, i = (thread >> 5) & 3, (thread >> 3) & 3
    return np.int32(x_place(own, piece) + 4 * i), np.int32(x_place(own + 16, piece) + 4 * i), own


@jit
def widened_output(thread):
    """The output of a tile of which a thread widens four neighbouring elements, 4 * (thread mod 8) .. of a step."""
    return np.int32(thread >> 3)


@jit
def store_widened(to, w0, w1, w2, w3):
    store_shared_float(to, w0)
    store_shared_float(to + 128, w1)
    store_shared_float(to + 256, w2)
    store_shared_float(to + 384, w3)


@jit
def residue_of(thread):
    return np.int32((thread >> 5) + 8 * ((thread >> 3) & 3))


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
