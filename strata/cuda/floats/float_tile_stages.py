"""Where a float tile of 32 rows x 32 outputs lies in shared memory, and how it gets there and is read.

A step is 16 neighbouring elements of every row and output, one for each residue t: floats [element][row] and [element][output], 128 bytes an
element.  Pieces of four rows (outputs) change places with the element, in the upper eight elements also the halves of a piece of rows:
so neither copies of rows (16 elements of two rows at once) nor stored weights (8 elements of 4 outputs) meet a bank twice.  Of a thread's place in
its warp, bits 0 and 2 choose its outputs, bits 1 and 3 its rows, bit 4 its residue: neighbours have the same rows, threads two
apart the same outputs, so that a read of 16 bytes takes two passes of shared memory where it else takes four.

    row_places(thread), row_copier(target)        a thread copies element thread mod 16 of two rows, 16 apart, of one step or of a stage
    weight_place(thread), weight_way(name, ...)   a thread brings two neighbouring elements of one output to their places
    read_places(thread)                           rows: two pieces of four; outputs: two, of which a thread keeps the first in the level 8
    meet(at, thread, sums), store_tile(...)       the tree's levels 8 (inside a warp), 4, 2, 1 (through shared memory)

Shapes as in float_rows.py.  Does not know: how many steps there are.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strata.cuda.floats.float_tile_steps import LOW_HALF, THREADS
from strata.cuda.machine.addresses import copier, shared_float, shared_word, store_shared_float
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.seam import Target, add, brain, exchange_float, half, jit
from strata.numerics.orders import WIDE

ROWS, OUTPUTS, RESIDUES, STEPS = 32, 32, 16, 5
"""Rows and outputs of a tile, elements of a step, steps of a stage."""
X_BYTES = WEIGHT_BYTES = 4 * 32 * RESIDUES
"""Of a step."""
PART_BYTES = 4 * 32 * 32
"""What a warp leaves for the others to meet."""
OTHER_PIECE = 64
"""A thread's second piece lies this many bytes from the first, upwards or downwards: the places differ in this bit."""


@jit
def residue_of(thread):
    return np.int32((thread >> 5) + 8 * ((thread >> 4) & 1))


@jit
def row_places(thread):
    """A thread's places for its two rows in a step."""
    e, row = thread & 15, thread >> 4
    place = np.int32(128 * e + 16 * ((row >> 2) ^ (e & 7)) + 4 * ((row & 3) ^ (2 * (e >> 3))))
    return place, np.int32(place ^ OTHER_PIECE)


def row_copier(target: Target):
    """Build `copy_step(to, places, source, apart)` and `copy_some(to, places, source, apart, left)`: one step; those of a stage, elements from
    `left` on left out.

    source: address of the thread's element of the (first) step in its lower row; apart: bytes from there to the higher one.
    """
    copy = copier(4, 0, 0, target)

    @jit
    def copy_step(to, places, source, apart):
        copy(to + places[0], source)
        copy(to + places[1], source + apart)

    @jit
    def copy_some(to, places, source, apart, left):
        for s in range(STEPS):
            if left > WIDE * s:
                copy_step(to + X_BYTES * s, places, source + 4 * WIDE * s, apart)

    return copy_step, copy_some


@jit
def weight_place(thread):
    """A thread's place for the first of its two elements in a step; the second lies 128 bytes behind."""
    k, o = thread & 7, thread >> 3
    return np.int32(256 * k + 16 * ((o >> 2) ^ k) + 4 * (o & 3))


@dataclass(frozen=True, slots=True)
class WeightWay:
    """How a thread's two elements of a step reach their places.

    copy(raw, wide, source)     sends them on their way, as they are, to the thread's word at `raw` or to their place at `wide`
    widen(raw, wide)            puts what has arrived at `raw` to its place
    raw_bytes, slots            shared memory of a step as it is; slots of stages at their places
    """

    copy: Callable
    widen: Callable
    raw_bytes: int
    slots: int


def weight_way(type_name: str, slots: int, target: Target) -> WeightWay:
    """Return the way of a format: values of two bytes arrive as they are and are widened a stage later, floats go to their places."""
    copy_word = copier(4, 0, 0, target)
    if type_name == "F32":
        copy_next = copier(4, 128, 4, target)

        @jit
        def copy_both(raw, wide, source):
            copy_word(wide, source)
            copy_next(wide, source)

        @jit
        def leave(raw, wide):
            return

        return WeightWay(copy_both, leave, 0, slots)
    widened = {"BF16": brain, "F16": half}[type_name]

    @jit
    def copy(raw, wide, source):
        copy_word(raw, source)

    @jit
    def widen(raw, wide):
        word = np.uint32(shared_word(raw))
        store_shared_float(wide, widened(word & LOW_HALF))
        store_shared_float(wide + 128, widened(word >> 16))

    return WeightWay(copy, widen, 4 * THREADS, 2)


@jit
def read_places(thread):
    """Places of a thread's rows and outputs in a step: first piece and second of each."""
    t, second = residue_of(thread), (thread >> 4) & 1
    ty, tx = ((thread >> 1) & 1) | ((thread >> 2) & 2), (thread & 1) | ((thread >> 1) & 2)
    rows = np.int32(128 * t + 16 * (ty ^ (t & 7)))
    outputs = np.int32(128 * t + 16 * ((tx + 4 * second) ^ (t >> 1)))
    return rows, np.int32(rows ^ OTHER_PIECE), outputs, np.int32(outputs ^ OTHER_PIECE)


@jit
def _place_of(lane, o, r):
    """Byte of a lane's value of output o (0 .. 3) and row r (0 .. 7) in its warp's part: a warp's reads meet no bank twice."""
    return 4 * (lane ^ (2 * (r & 1)) ^ (4 * (r & 2))) + 128 * (8 * o + r)


@jit
def meet(at, thread, sums):
    """The level 8, which halves a thread's outputs; then every warp's part goes to shared memory at `at`.

    The two threads have the halves of a piece of rows in different order: row r of one is row r ^ 2 of the other.
    """
    for o in range(4):
        for r in range(8):
            sums[8 * o + r] = add(sums[8 * o + r], exchange_float(sums[32 + 8 * o + (r ^ 2)], np.int32(16)))
    to, lane = at + PART_BYTES * (thread >> 5), thread & 31
    for o in range(4):
        for r in range(8):
            store_shared_float(to + _place_of(lane, o, r), sums[8 * o + r])


@jit
def _total(place):
    """The levels 4, 2 and 1: one sum of the eight warps."""
    return tree8(
        shared_float(place), shared_float(place + PART_BYTES), shared_float(place + 2 * PART_BYTES), shared_float(place + 3 * PART_BYTES),
        shared_float(place + 4 * PART_BYTES), shared_float(place + 5 * PART_BYTES), shared_float(place + 6 * PART_BYTES),
        shared_float(place + 7 * PART_BYTES),
    )


@jit
def store_tile(at, thread, first_row, first_output, n_rows, n_out, out):
    """Store four neighbouring outputs of one row."""
    own_row, piece = thread >> 3, thread & 7
    ty, second = (own_row >> 2) & 3, piece >> 2
    lane = (piece & 1) | (2 * (ty & 1)) | (2 * (piece & 2)) | (4 * (ty & 2)) | (16 * second)
    r = np.int32(4 * (own_row >> 4) + ((own_row & 3) ^ (2 * second)))
    place = at + _place_of(lane, 0, r)
    row, n = np.int32(first_row + own_row), np.int32(first_output + 4 * piece)
    to = np.int64(row) * n_out + n
    for o in range(4):
        total = _total(place + 1024 * o)
        if row < n_rows and n + o < n_out:
            out[to + o] = total
