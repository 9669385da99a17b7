"""The inner parts of float products in tiles of 16 rows x 32 outputs: staging, one step, parking, the meeting of the lanes.

Lane = t + 32 j.  A thread has one residue t (t = warp + 8 r, r = thread mod 4) of 8 rows x 8 outputs; the lane groups j
follow one another in the order 0 4 2 6 1 5 3 7, so that the tree's levels 128, 64 and 32 are additions inside the thread.  The levels 16
and 8 join the four residues of a warp (each step hands half of a thread's sums over), the levels 4, 2, 1 the eight warps, in
shared memory.

A step is 32 neighbouring elements of a row, one a residue: floats [element][row] and [element][output], in pieces of four that
are swapped so that neither copies (8 elements x 4 rows at once) nor reads (4 residues x 2 or 4 pieces) meet a bank twice.
Shapes as in float_rows.py.  Does not know: how many steps there are.
"""

import numpy as np

from strata.cuda.machine.addresses import copier, shared_four_floats, shared_word, store_shared_float
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.seam import Target, add, brain, exchange_float, fma, from_bits, half, jit, load_four_floats, load_two_words

ZERO = np.float32(0.0)
ROWS, OUTPUTS, SIDE = 16, 32, 8
THREADS = 256
STEP = 32
"""Elements of a step: one for each residue."""
X_BYTES, WEIGHT_BYTES = 4 * STEP * ROWS, 4 * STEP * OUTPUTS
N_SUMS = SIDE * SIDE
PARKED_BYTES = 4 * N_SUMS * THREADS
"""Shared memory where every thread parks its sums of one level."""
MEETING_BYTES = PARKED_BYTES // 4
LOW_HALF = np.uint32(0xFFFF)


@jit
def _four_brains(raw, at):
    a, b = load_two_words(raw, at)
    a, b = np.uint32(a), np.uint32(b)
    return brain(a & LOW_HALF), brain(a >> 16), brain(b & LOW_HALF), brain(b >> 16)


@jit
def _four_halves(raw, at):
    a, b = load_two_words(raw, at)
    a, b = np.uint32(a), np.uint32(b)
    return half(a & LOW_HALF), half(a >> 16), half(b & LOW_HALF), half(b >> 16)


WIDEN_FOUR = {"BF16": (_four_brains, 2), "F16": (_four_halves, 2), "F32": (load_four_floats, 4)}
"""By type name: `load(raw, byte) -> four floats`, and bytes per value."""


@jit
def group_of(turn):
    """The lane group of a turn: 0 4 2 6 1 5 3 7."""
    return np.int32(((turn & 1) << 2) | (turn & 2) | (turn >> 2))


@jit
def x_place(element, piece):
    """Byte of four rows' values of an element (0..31) in a step's activations."""
    slot = element ^ ((element >> 3) & 1)
    return np.int32(64 * slot + 16 * (piece ^ (((element >> 1) ^ (element >> 3)) & 3)))


@jit
def weight_place(element, piece):
    """Byte of four outputs' values of an element in a step's weights."""
    return np.int32(128 * element + 16 * (piece ^ ((element >> 2) & 7)))


def row_copier(n_steps: int, step_bytes: int, elements: int, target: Target):
    """Build `copy(to, places, source, element, n_in)`: n_steps (5 at most) steps, `elements` apart, of a tile's activations.

    A thread copies two values of a step: element 8 c + (thread mod 8) of one row, c and c + 2; those beyond n_in are left out.
    """
    c0, c1, c2, c3, c4 = (copier(4, step_bytes * s, 4 * elements * s, target) for s in range(5))

    @jit
    def series(to, source, left):
        if left > 0:
            c0(to, source)
        if n_steps > 1 and left > elements:
            c1(to, source)
        if n_steps > 2 and left > 2 * elements:
            c2(to, source)
        if n_steps > 3 and left > 3 * elements:
            c3(to, source)
        if n_steps > 4 and left > 4 * elements:
            c4(to, source)

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
def widened_place(thread):
    """Where the first of them goes in a step's weights; the others follow 128 bytes apart."""
    return np.int32(weight_place(4 * (thread & 7), thread >> 5) + 4 * ((thread >> 3) & 3))


@jit
def store_widened(to, w0, w1, w2, w3):
    store_shared_float(to, w0)
    store_shared_float(to + 128, w1)
    store_shared_float(to + 256, w2)
    store_shared_float(to + 384, w3)


@jit
def residue_of(thread):
    return np.int32((thread >> 5) + 8 * (thread & 3))


@jit
def read_places(thread):
    """Where a thread's rows (two pieces of four) and outputs (two pieces) of its residue lie in a step."""
    t, ty, tx = residue_of(thread), (thread >> 2) & 1, (thread >> 3) & 3
    return x_place(t, ty), x_place(t, ty + 2), weight_place(t, tx), weight_place(t, tx + 4)


def whole_step(fresh: bool):
    """Build `step(x_at, w_at, places, x, w, sums)`: one element of 8 rows x 8 outputs; sums[8 o + r].  A lane's first step is `fresh`, from +0."""

    @jit
    def step(x_at, w_at, places, x, w, sums):
        low_rows, high_rows, low_outputs, high_outputs = places
        x[0], x[1], x[2], x[3] = shared_four_floats(x_at + low_rows)
        w[0], w[1], w[2], w[3] = shared_four_floats(w_at + low_outputs)
        x[4], x[5], x[6], x[7] = shared_four_floats(x_at + high_rows)
        w[4], w[5], w[6], w[7] = shared_four_floats(w_at + high_outputs)
        for o in range(SIDE):
            for r in range(SIDE):
                sums[SIDE * o + r] = fma(w[o], x[r], ZERO if fresh else sums[SIDE * o + r])

    return step


def half_step(fresh: bool, upper: bool, to: int):
    """Build the same for the lower or upper four outputs; sums[to + 8 o + r]."""

    @jit
    def step(x_at, w_at, places, x, w, sums):
        low_rows, high_rows, low_outputs, high_outputs = places
        x[0], x[1], x[2], x[3] = shared_four_floats(x_at + low_rows)
        w[0], w[1], w[2], w[3] = shared_four_floats(w_at + (high_outputs if upper else low_outputs))
        x[4], x[5], x[6], x[7] = shared_four_floats(x_at + high_rows)
        for o in range(SIDE // 2):
            for r in range(SIDE):
                sums[to + SIDE * o + r] = fma(w[o], x[r], ZERO if fresh else sums[to + SIDE * o + r])

    return step


next_step = whole_step(False)


@jit
def clear(sums):
    for v in range(N_SUMS):
        sums[v] = ZERO


@jit
def park(at, sums):
    """Leave a thread's sums in shared memory; `at` is this thread's place."""
    for v in range(N_SUMS):
        store_shared_float(at + 4 * THREADS * v, sums[v])


@jit
def shared_float(at):
    return from_bits(np.int32(shared_word(at)))


@jit
def add_parked(at, sums):
    for v in range(N_SUMS):
        sums[v] = add(shared_float(at + 4 * THREADS * v), sums[v])


@jit
def meet(at, thread, sums):
    """The levels 16 and 8 inside a warp; then every warp's part goes to shared memory at `at`."""
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
def _total(place):
    """The levels 4, 2 and 1: one sum of the eight warps."""
    return tree8(
        shared_float(place), shared_float(place + 2048), shared_float(place + 4096), shared_float(place + 6144),
        shared_float(place + 8192), shared_float(place + 10240), shared_float(place + 12288), shared_float(place + 14336),
    )


@jit
def store_tile(at, thread, first_row, first_output, n_rows, n_out, out):
    """Sum the warps and write the tile: a thread has two neighbouring outputs of one row."""
    ty, tx, o, r = (thread >> 2) & 1, (thread >> 3) & 3, 2 * (thread & 3), thread >> 5
    row = np.int32(first_row + 4 * (ty + 2 * (r >> 2)) + (r & 3))
    n = np.int32(first_output + 4 * (tx + 4 * (o >> 2)) + (o & 3))
    place = at + 4 * (32 * r + (thread & 31))
    first, second = _total(place), _total(place + 1024)
    if row < n_rows:
        to = np.int64(row) * n_out + n
        if n < n_out:
            out[to] = first
        if n + 1 < n_out:
            out[to + 1] = second
