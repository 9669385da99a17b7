"""Products of one long activation row with float weights: 256 lanes, two outputs a block.

The order of host/float_products.py: element i belongs to lane i mod 256, a lane is a chain in ascending i, the halving tree
sums the lanes.  Thread t of 128 holds lanes 2 t and 2 t + 1 of both outputs, so that what it reads of the activations serves two.
The weight rows are copied to shared memory before the activations are known (float_copies.py); these follow in parts, each of which is multiplied
while the next ones are on their way.  The lanes meet in shared memory, where a warp for each output adds them: the tree's first
three levels inside a thread, the others by exchanges.  One launch takes two matrices of the same input.

Shapes: weights uint8 (raw bytes of [n_out, n_in], n_in a multiple of 4); x float32 [n_in]; out float32 [n_out].
Does not know: what the products are for.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.floats.float_copies import PIECE, bulk_rows, in_bulk, landed, row_copier, row_pitch
from strata.cuda.machine.addresses import (
    copy_series, global_address, shared_address, shared_float, shared_two_floats, shared_word, store_global_float, store_shared_float,
)
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.seam import Target, brain, copies, fma, half, jit, kernel, launch_dependents, wait_for_dependency
from strata.cuda.machine.warps import sum_row
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
OUTPUTS, THREADS, PARTS = 2, 128, 4
LEAST_COLUMNS = 1024
"""Shorter rows have no parts worth the name."""
N_LANES = 2 * OUTPUTS
"""Of a thread."""
MEETING_BYTES = 4 * OUTPUTS * WIDE
LOW_HALF = np.uint32(0xFFFF)


@jit
def _two_brains(at):
    both = np.uint32(shared_word(at))
    return brain(both & LOW_HALF), brain(both >> 16)


@jit
def _two_halves(at):
    both = np.uint32(shared_word(at))
    return half(both & LOW_HALF), half(both >> 16)


WIDEN_TWO = {"BF16": (_two_brains, 2), "F16": (_two_halves, 2), "F32": (shared_two_floats, 4)}
"""By type name: `load(shared address) -> two floats`, and bytes per value."""


def weight_pitch(type_name: str, n_in: int) -> int:
    """Return the bytes of shared memory for a weight row."""
    return row_pitch(n_in * WIDEN_TWO[type_name][1])


def meeting_place(type_name: str, n_in: int) -> int:
    """Return the bytes before the place where lanes meet: the activations and the weight rows."""
    return 4 * n_in + OUTPUTS * weight_pitch(type_name, n_in)


def barrier_place(type_name: str, n_in: int) -> int:
    """Return the bytes before the barrier of weights that come in bulk, a multiple of 8."""
    return (meeting_place(type_name, n_in) + MEETING_BYTES + 7) & -8


def shared_bytes(type_name: str, n_in: int) -> int:
    """Return the dynamic shared memory of a block: the activations, its weight rows, all lanes, and a barrier."""
    return barrier_place(type_name, n_in) + 8


def takes(type_name: str, n_in: int, room: int) -> bool:
    """Whether these blocks take a row; `room`: the shared memory that a block can have."""
    return n_in >= LEAST_COLUMNS and shared_bytes(type_name, n_in) <= room


def blocks_of(n_out: int) -> int:
    """Return the blocks of a matrix."""
    return -(-n_out // OUTPUTS)


def _part_turns(n_in: int) -> int:
    """Return the turns of the 256 lanes in a part: the last part may have fewer."""
    return -(-n_in // (PARTS * WIDE))


def weight_sender(type_name: str, n_in: int, target: Target):
    """Build `send(place, shared, n, n_own, thread)`: weight rows n and n + 1 on their way; row n_own is row n_own - 1.

    Returns where the first bytes of both will lie.
    """
    n_bytes, slots_at, barrier_at = n_in * WIDEN_TWO[type_name][1], 4 * n_in, barrier_place(type_name, n_in)
    pitch, commit, send_one = weight_pitch(type_name, n_in), copies(target, 0).commit, row_copier(n_bytes, THREADS, target)
    send_rows = bulk_rows(n_bytes)

    @jit
    def send_in_bulk(place, shared, n, n_own, thread):
        first, n_rows = shared + slots_at, min(np.int32(n_own - n), np.int32(OUTPUTS))
        send_rows(place, first, n, n_rows, shared + barrier_at, thread)
        return first, first + (n_rows - 1) * n_bytes

    @jit
    def send(place, shared, n, n_own, thread):
        first = send_one(place, shared + slots_at, n, thread)
        second = send_one(place, shared + (slots_at + pitch), min(np.int32(n + 1), np.int32(n_own - 1)), thread)
        commit()
        return first, second

    return send_in_bulk if in_bulk(n_bytes, target) else send


def row_sender(n_in: int, target: Target):
    """Build `send(x, to, thread)`: the activations, a group of copies for each part."""
    part_bytes, n_parts, commit = 4 * WIDE * _part_turns(n_in), PARTS, copies(target, 0).commit
    step = PIECE * THREADS
    copy = copy_series(PIECE, -(-part_bytes // step), step, step, step, target)

    @jit
    def send(x, to, thread):
        for part in range(n_parts):
            begin = part * part_bytes
            copy(to + (begin + PIECE * thread), x + (begin + PIECE * thread), np.int32(min(4 * n_in - begin, part_bytes) - PIECE * thread))
            commit()

    return send


@jit
def meet(a0, a1, b0, b1, x0, x1, lanes):
    """Two neighbouring elements of the row with those of both outputs."""
    lanes[0], lanes[1] = fma(a0, x0, lanes[0]), fma(a1, x1, lanes[1])
    lanes[2], lanes[3] = fma(b0, x0, lanes[2]), fma(b1, x1, lanes[3])


@jit
def _nothing(first, second, x_at, thread, lanes):
    return


def _part(type_name: str, n_in: int, part: int, meet_two, follow, target: Target):
    """Build a part's products, behind the wait for it, and what follows."""
    (widen_two, value_bytes), wait = WIDEN_TWO[type_name], copies(target, PARTS - 1 - part).wait
    brings_weights, barrier_at = part == 0 and in_bulk(n_in * value_bytes, target), barrier_place(type_name, n_in)
    begin = part * WIDE * _part_turns(n_in)
    n_turns, left = divmod(max(0, min(n_in - begin, WIDE * _part_turns(n_in))), WIDE)

    @jit
    def one(first, second, x_at, i, lanes):
        x0, x1 = shared_two_floats(x_at + 4 * i)
        a0, a1 = widen_two(first + value_bytes * i)
        b0, b1 = widen_two(second + value_bytes * i)
        meet_two(a0, a1, b0, b1, x0, x1, lanes)

    @jit
    def advance(first, second, x_at, thread, lanes):
        wait()
        cuda.syncthreads()
        if brings_weights:
            landed(x_at + barrier_at)
        own = begin + 2 * thread
        for turn in range(n_turns):
            one(first, second, x_at, own + WIDE * turn, lanes)
        if left > 0 and 2 * thread < left:
            one(first, second, x_at, own + WIDE * n_turns, lanes)
        follow(first, second, x_at, thread, lanes)

    return advance


def row_products(type_name: str, n_in: int, meet_two, target: Target):
    """Build `advance(first, second, x_at, thread, lanes)`: all elements of two weight rows that lie at `first` and `second`, part by part."""
    advance = _nothing
    for part in reversed(range(PARTS)):
        advance = _part(type_name, n_in, part, meet_two, advance, target)
    return advance


@cache
def float_one_row(type_name: str, n_in: int, target: Target):
    """Return the kernel (weights, other, n_out, n_other, x, out, other_out): two matrices of the same input, of which the second may have no
    outputs.  Grid: the blocks of both, the first's first."""
    meeting_at = meeting_place(type_name, n_in)
    send_weights, send_row, advance = weight_sender(type_name, n_in, target), row_sender(n_in, target), row_products(type_name, n_in, meet, target)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(weights, other, n_out, n_other, x, out, other_out):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        thread, block, n_first = np.int32(cuda.threadIdx.x), np.int32(cuda.blockIdx.x), np.int32((n_out + OUTPUTS - 1) // OUTPUTS)
        is_other = block >= n_first
        place, n_own = (global_address(other), n_other) if is_other else (global_address(weights), n_out)
        n = np.int32((block - n_first if is_other else block) * OUTPUTS)
        first, second = send_weights(place, shared, n, n_own, thread)
        go_on()
        wait_before()
        send_row(global_address(x), shared + 0, thread)
        lanes = cuda.local.array(N_LANES, np.float32)
        for v in range(N_LANES):
            lanes[v] = ZERO
        advance(first, second, shared + 0, thread, lanes)
        at = shared + (meeting_at + 8 * thread)
        for o in range(OUTPUTS):
            store_shared_float(at + 4 * WIDE * o, lanes[2 * o])
            store_shared_float(at + (4 * WIDE * o + 4), lanes[2 * o + 1])
        cuda.syncthreads()
        which, lane = thread >> 5, thread & 31
        if which < OUTPUTS:
            at = shared + (meeting_at + 4 * WIDE * which + 4 * lane)
            total = sum_row(tree8(
                shared_float(at), shared_float(at + 128), shared_float(at + 256), shared_float(at + 384),
                shared_float(at + 512), shared_float(at + 640), shared_float(at + 768), shared_float(at + 896),
            ))
            if lane == 0 and n + which < n_own:
                store_global_float((global_address(other_out) if is_other else global_address(out)) + 4 * np.int64(n + which), total)

    return run
