"""The inner parts of float products in tiles of 16 rows x 32 outputs: staging, one step, parking.

Lane = t + 32 j.  A thread has one residue t (t = warp + 8 r, r the two upper bits of its place in the warp) of 8 rows x 8 outputs; the lane groups j
follow one another in the order 0 4 2 6 1 5 3 7, so that the tree's levels 128, 64 and 32 are additions inside the thread; the lower
levels and the places of weights in shared memory are those of float_tile_meeting.py.

A step is 32 neighbouring elements of a row, one a residue: floats [element][row] and [element][output], in pieces of four that
are swapped so that neither copies (8 elements x 4 rows at once) nor reads (4 residues x 2 or 4 pieces) meet a bank twice.
Shapes as in float_rows.py.  Does not know: how many steps there are.
"""

import numpy as np

from strata.cuda.machine.addresses import copier, shared_four_floats, shared_word, store_shared_float
from strata.cuda.machine.seam import Target, add, brain, fma, from_bits, half, jit, load_four_floats, load_two_words

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
def store_widened(to, w0, w1, w2, w3):
    store_shared_float(to, w0)
    store_shared_float(to + 128, w1)
    store_shared_float(to + 256, w2)
    store_shared_float(to + 384, w3)


@jit
def residue_of(thread):
    return np.int32((thread >> 5) + 8 * ((thread >> 3) & 3))


@jit
def read_step(x_at, w_at, places, x, w):
    """One element of 8 rows and of 8 outputs."""
    low_rows, high_rows, low_outputs, high_outputs = places
    x[0], x[1], x[2], x[3] = shared_four_floats(x_at + low_rows)
    w[0], w[1], w[2], w[3] = shared_four_floats(w_at + low_outputs)
    x[4], x[5], x[6], x[7] = shared_four_floats(x_at + high_rows)
    w[4], w[5], w[6], w[7] = shared_four_floats(w_at + high_outputs)


def whole_step(fresh: bool):
    """Build `step(x_at, w_at, places, x, w, sums)`: one element of 8 rows x 8 outputs; sums[8 o + r].  A lane's first step is `fresh`, from +0."""

    @jit
    def step(x_at, w_at, places, x, w, sums):
        read_step(x_at, w_at, places, x, w)
        for o in range(SIDE):
            for r in range(SIDE):
                sums[SIDE * o + r] = fma(w[o], x[r], ZERO if fresh else sums[SIDE * o + r])

    return step


@jit
def multiply(x, w, sums):
    """What `next_step` does with the values that it has read."""
    for o in range(SIDE):
        for r in range(SIDE):
            sums[SIDE * o + r] = fma(w[o], x[r], sums[SIDE * o + r])


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
