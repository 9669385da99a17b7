"""Products of a few activation rows with float weights (bfloat16, float16 or float32): 256 lanes, 64 threads an output.

The order of host/float_products.py: element i belongs to lane i mod 256, a lane is a chain in ascending i, the halving tree
sums the lanes.  Thread t of an output holds lanes 4 t .. 4 t + 3.  An output's whole weight row is copied to shared memory
at once, before the activations are known, and so are one or two long activation rows, when they are.  One launch takes two
matrices of the same input.  The tree: lanes 128 apart meet through shared memory (threads 32 apart), lanes 64 .. 4 apart by
exchanges inside a warp, where each step keeps half of a thread's lanes, lanes 2 and 1 apart likewise.

Shapes: weights uint8 (raw bytes of [n_out, n_in], n_in a multiple of 4); x float32 [rows * n_in]; out float32 [rows * n_out].
Does not know: what the products are for.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.machine.addresses import (
    copier, global_address, shared_address, shared_four_floats, shared_two_words, store_global_float,
)
from strata.cuda.machine.seam import (
    Target, add, brain, copies, exchange_float, fma, half, jit, kernel, launch_dependents, load_four_floats, wait_for_dependency,
)
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
THREADS_PER_OUTPUT = 64
MEETING = 128
"""Floats per row and output in which the two warps of an output meet."""
MOST_ROWS = 8
LONG_ROW, LONG_OUTPUTS = 1024, 3
"""Columns from which activation rows are staged, and how many outputs a block then has: they share the rows, and a large card has some
hundred multiprocessors for the 324 outputs of a stream read."""
MOST_STAGED_BYTES = 84000
"""Activation rows beyond this stay outside shared memory."""
GO_EARLY = True
"""Whether blocks of the next kernel may start as soon as every weight row is on its way: they fetch weights meanwhile."""
LOW_HALF = np.uint32(0xFFFF)


@jit
def _four_brains(at):
    a, b = shared_two_words(at)
    a, b = np.uint32(a), np.uint32(b)
    return brain(a & LOW_HALF), brain(a >> 16), brain(b & LOW_HALF), brain(b >> 16)


@jit
def _four_halves(at):
    a, b = shared_two_words(at)
    a, b = np.uint32(a), np.uint32(b)
    return half(a & LOW_HALF), half(a >> 16), half(b & LOW_HALF), half(b >> 16)


WIDEN_FOUR = {"BF16": (_four_brains, 2), "F16": (_four_halves, 2), "F32": (shared_four_floats, 4)}
"""By type name: `load(shared address) -> four floats`, and bytes per value."""


@jit
def sum_in_warp(v0, v1, v2, v3, thread):
    """Sum lanes 4 t + j (j = 0..3) of the 32 threads of a warp by the halving tree; every thread gets the sum."""
    upper = thread & 16
    a = add(v2 if upper else v0, exchange_float(v0 if upper else v2, np.int32(16)))
    b = add(v3 if upper else v1, exchange_float(v1 if upper else v3, np.int32(16)))
    upper = thread & 8
    a = add(b if upper else a, exchange_float(a if upper else b, np.int32(8)))
    a = add(a, exchange_float(a, np.int32(4)))
    a = add(a, exchange_float(a, np.int32(2)))
    a = add(a, exchange_float(a, np.int32(1)))
    a = add(a, exchange_float(a, np.int32(16)))
    return add(a, exchange_float(a, np.int32(8)))


@dataclass(frozen=True, slots=True)
class FloatShape:
    """How a launch is cut: outputs per block, whether activations are staged, bytes of shared memory per weight row and in all."""

    n_outputs: int
    staged: bool
    pitch: int
    shared_bytes: int


def shape_of(type_name: str, n_in: int, n_rows: int, room: int) -> FloatShape:
    """Return the cut for a product: few long activation rows are staged, for several outputs a block if they fit, else for one.

    Long rows that are not staged have one output a block, short ones four.  `room`: the shared memory that a block can have.
    """
    pitch, row_bytes = (n_in * WIDEN_FOUR[type_name][1] + 31) // 16 * 16, n_rows * n_in * 4

    def bytes_of(n_outputs: int) -> int:
        return n_outputs * (pitch + 4 * MEETING * n_rows)

    if n_in >= LONG_ROW and row_bytes <= MOST_STAGED_BYTES:
        for n_outputs in (LONG_OUTPUTS, 1):
            if bytes_of(n_outputs) + row_bytes <= room:
                return FloatShape(n_outputs, True, pitch, bytes_of(n_outputs) + row_bytes)
    n_outputs = 1 if n_in >= LONG_ROW else 4
    return FloatShape(n_outputs, False, pitch, bytes_of(n_outputs))


@jit
def fuse_four(w0, w1, w2, w3, x0, x1, x2, x3, lanes, at):
    """lanes[at : at + 4] go on with four weights and activations."""
    lanes[at] = fma(w0, x0, lanes[at])
    lanes[at + 1] = fma(w1, x1, lanes[at + 1])
    lanes[at + 2] = fma(w2, x2, lanes[at + 2])
    lanes[at + 3] = fma(w3, x3, lanes[at + 3])


def warps_meeting(n_rows: int):
    """Build `hand_over(...)` and `total_of(...)`: the two warps of an output meet in MEETING floats per row of shared memory.

    hand_over(lanes, floats, meeting, warp, in_warp): a warp's lanes of the rows that the other one sums, which are the odd ones for
    the second; the block must meet behind it.  total_of(lanes, floats, meeting, r, in_warp): the sum of all lanes of row r.
    """

    @jit
    def hand_over(lanes, floats, meeting, warp, in_warp):
        for r in range(n_rows):
            if (r & 1) != warp:
                for j in range(4):
                    floats[meeting + MEETING * r + 32 * j + in_warp] = lanes[4 * r + j]

    @jit
    def total_of(lanes, floats, meeting, r, in_warp):
        at = meeting + MEETING * r + in_warp
        v0, v1 = add(lanes[4 * r], floats[at]), add(lanes[4 * r + 1], floats[at + 32])
        v2, v3 = add(lanes[4 * r + 2], floats[at + 64]), add(lanes[4 * r + 3], floats[at + 96])
        return sum_in_warp(v0, v1, v2, v3, in_warp)

    return hand_over, total_of


def _advance(type_name: str, n_rows: int, staged: bool):
    """Build `advance(row_at, x_at, x, begin, end, thread, n_in, lanes)`: elements begin .. end - 1 of all rows."""
    widen_four, value_bytes = WIDEN_FOUR[type_name]

    @jit
    def advance(row_at, x_at, x, begin, end, thread, n_in, lanes):
        for i in range(begin + 4 * thread, end, WIDE):
            w0, w1, w2, w3 = widen_four(row_at + i * value_bytes)
            for r in range(n_rows):
                if staged:
                    x0, x1, x2, x3 = shared_four_floats(x_at + 4 * (r * n_in + i))
                else:
                    x0, x1, x2, x3 = load_four_floats(x, 4 * (np.int64(r) * n_in + i))
                fuse_four(w0, w1, w2, w3, x0, x1, x2, x3, lanes, 4 * r)

    return advance


def output_products(type_name: str, n_rows: int, n_outputs: int, staged: bool, target: Target):
    """Build `begin(...)`, which sends an output's weight row on its way, and `finish(...)`, which computes it for all rows.

    64 n_outputs threads call both, each for output `which` of its block; a block's shared memory is that of `shape_of`.
    """
    value_bytes = WIDEN_FOUR[type_name][1]
    halfway, done = copies(target, 1), copies(target, 0)
    copy_weights, copy_row, commit = copier(16, 0, 0, target, once=True), copier(16, 0, 0, target), done.commit
    wait_half, wait_all = halfway.wait, done.wait
    advance, (hand_over, total_of) = _advance(type_name, n_rows, staged), warps_meeting(n_rows)
    n_lanes, n_threads = 4 * n_rows, THREADS_PER_OUTPUT * n_outputs

    @jit
    def begin(shared, place, n, n_in, pitch, thread, which):
        """Copy weight row n in two halves; return where its slot begins, bytes before the row, and elements of the first half."""
        start = np.int64(n) * n_in * value_bytes
        before = start & 15
        slot = shared + ((4 * n_rows * np.int64(n_in) if staged else np.int64(0)) + which * pitch)
        n_pieces = (before + n_in * value_bytes + 15) >> 4
        middle = (n_in >> 1) & -WIDE
        pieces_half = (middle * value_bytes + 16) >> 4
        for piece in range(thread, pieces_half, THREADS_PER_OUTPUT):
            copy_weights(slot + 16 * piece, place + (start - before + 16 * piece))
        commit()
        for piece in range(pieces_half + thread, n_pieces, THREADS_PER_OUTPUT):
            copy_weights(slot + 16 * piece, place + (start - before + 16 * piece))
        commit()
        return slot, before, middle

    @jit
    def finish(shared, floats, slot, before, middle, x, n, n_in, n_out, pitch, thread, which, out):
        """All rows' products with output n (none where n >= n_out) to address `out`; every thread of the block comes here."""
        staged_bytes = 4 * n_rows * np.int64(n_in) if staged else np.int64(0)
        if staged:
            for piece in range(np.int32(cuda.threadIdx.x), staged_bytes >> 4, n_threads):
                copy_row(shared + 16 * piece, global_address(x) + 16 * piece)
            commit()
        lanes = cuda.local.array(n_lanes, np.float32)
        for v in range(n_lanes):
            lanes[v] = ZERO
        if staged:
            wait_all()
        else:
            wait_half()
        cuda.syncthreads()
        advance(slot + before, shared + 0, x, 0, middle, thread, n_in, lanes)
        wait_all()
        cuda.syncthreads()
        advance(slot + before, shared + 0, x, middle, n_in, thread, n_in, lanes)
        meeting = ((staged_bytes + n_outputs * pitch) >> 2) + which * n_rows * MEETING
        warp, in_warp = thread >> 5, thread & 31
        hand_over(lanes, floats, meeting, warp, in_warp)
        cuda.syncthreads()
        for r in range(n_rows):
            if (r & 1) == warp:
                total = total_of(lanes, floats, meeting, r, in_warp)
                if in_warp == 0 and n < n_out:
                    store_global_float(out + 4 * (np.int64(r) * n_out + n), total)

    return begin, finish


@cache
def float_rows(type_name: str, n_rows: int, n_outputs: int, staged: bool, target: Target):
    """Return the kernel for exactly n_rows (1 .. MOST_ROWS) rows and n_outputs outputs a block (64 threads each).

    kernel(weights, other, n_in, n_out, n_other, pitch, x, out, other_out): two matrices of the same input, the second's blocks
    behind the first's; n_other may be 0.  Grid: the blocks of both.  Shared memory: activation rows if `staged`, weight rows,
    then the lanes of threads of the other warp.
    """
    begin, finish = output_products(type_name, n_rows, n_outputs, staged, target)
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @kernel(THREADS_PER_OUTPUT * n_outputs)
    def run(weights, other, n_in, n_out, n_other, pitch, x, out, other_out):
        shared, floats = shared_address(cuda.shared.array(0, types.uint8)), cuda.shared.array(0, types.float32)
        thread, which = np.int32(cuda.threadIdx.x) & 63, np.int32(cuda.threadIdx.x) >> 6
        block, n_first = np.int32(cuda.blockIdx.x), np.int32((n_out + n_outputs - 1) // n_outputs)
        is_other = block >= n_first
        place = global_address(other) if is_other else global_address(weights)
        results = global_address(other_out) if is_other else global_address(out)
        n_own = n_other if is_other else n_out
        n = np.int32((block - n_first if is_other else block) * n_outputs + which)
        slot, before, middle = begin(shared, place, min(n, np.int32(n_own - 1)), n_in, pitch, thread, which)
        if GO_EARLY:
            go_on()
        wait_before()
        finish(shared, floats, slot, before, middle, x, n, n_in, n_own, pitch, thread, which, results)
        if not GO_EARLY:
            go_on()

    return run
