"""Products of one long activation row with float weights: 256 lanes, a few outputs a block that share what is read.

The order of host/float_products.py: element i belongs to lane i mod 256, a lane is a chain in ascending i, the halving tree
sums the lanes.  A block has three outputs; thread t of 128 holds lanes 2 t and 2 t + 1 of all of them, so that an activation is read from
shared memory once a block.  Weight rows are on their way before the activations are known; these come in parts, and the chains go
through a part while the next ones arrive.  The launch moves little beside that, so its blocks ask for weights of later launches too
(prefetching.py).  At the end lanes meet in shared memory: a warp sums one output's of one row, three levels of
the tree in a thread (lanes t + 32 m), five over the warp.

Shapes: weights uint8 (raw bytes of [n_out, n_in], n_in a multiple of BATCH); x float32 [rows * n_in]; out float32 [rows * n_out].
Does not know: what the products are for.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.machine.addresses import (
    copier, global_address, shared_address, shared_two_floats, shared_word, store_global_float, store_shared_float,
)
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.prefetching import asking
from strata.cuda.machine.seam import Target, brain, copies, fma, from_bits, half, jit, kernel, launch_dependents, wait_for_dependency
from strata.cuda.machine.warps import sum_row
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
THREADS = WIDE // 2
OUTPUTS = 3
"""Outputs of a block: 324 of a stream read are then 109 blocks, one for most multiprocessors of a large card."""
STEPS = 5
"""Elements of a lane whose weights and activations are read before the first is used."""
BATCH = STEPS * WIDE
PARTS = 4
"""Parts in which activations arrive, at most."""
MOST_ROWS = 1
"""With two rows the lanes of some targets would go to local memory."""
ASK_EARLY = False
"""Whether later launches' weights are asked for before the previous kernel has ended, whose own may be on their way still."""
LOW_HALF = np.uint32(0xFFFF)


@jit
def _two_brains(at):
    both = shared_word(at)
    return brain(both & LOW_HALF), brain(both >> np.uint32(16))


@jit
def _two_halves(at):
    both = shared_word(at)
    return half(both & LOW_HALF), half(both >> np.uint32(16))


WIDEN_TWO = {"BF16": (_two_brains, 2), "F16": (_two_halves, 2), "F32": (shared_two_floats, 4)}
"""By type name: `load(shared address) -> two floats`, and bytes per value."""


def row_bytes(type_name: str, n_in: int) -> int:
    """Return the bytes of a weight row."""
    return n_in * WIDEN_TWO[type_name][1]


def shared_bytes(type_name: str, n_in: int, n_rows: int) -> int:
    """Return the dynamic shared memory of a block: activation rows, weight rows, lanes."""
    return n_rows * n_in * 4 + OUTPUTS * (row_bytes(type_name, n_in) + n_rows * WIDE * 4)


def takes(type_name: str, n_in: int, n_rows: int, room: int) -> bool:
    """Whether these blocks take a product; `room`: the shared memory that a block can have."""
    return n_rows <= MOST_ROWS and n_in % BATCH == 0 and shared_bytes(type_name, n_in, n_rows) <= room


def blocks_of(n_out: int) -> int:
    """Return the blocks of a matrix."""
    return -(-n_out // OUTPUTS)


def _chains(type_name: str, n_rows: int):
    """Build `advance(x_at, w_at, begin, end, n_in, thread, held, lanes)`: elements begin .. end - 1, begin a multiple of 256.

    lanes[2 (n_rows o + r) + j] is lane 2 t + j of output o and row r.
    """
    widen_two, value_bytes = WIDEN_TWO[type_name]
    per_step = 2 * (OUTPUTS + n_rows)

    @jit
    def read(x_at, w_at, i, n_in, to, held):
        for o in range(OUTPUTS):
            held[to + 2 * o], held[to + 2 * o + 1] = widen_two(w_at + value_bytes * (o * n_in + i))
        for r in range(n_rows):
            v = to + 2 * (OUTPUTS + r)
            held[v], held[v + 1] = shared_two_floats(x_at + 4 * (r * n_in + i))

    @jit
    def compute(at, held, lanes):
        for o in range(OUTPUTS):
            for r in range(n_rows):
                w, x, v = at + 2 * o, at + 2 * (OUTPUTS + r), 2 * (n_rows * o + r)
                lanes[v], lanes[v + 1] = fma(held[w], held[x], lanes[v]), fma(held[w + 1], held[x + 1], lanes[v + 1])

    @jit
    def no_more(x_at, w_at, i, n_in, held, lanes):
        return

    def written_out(u, follow):
        """All reads, then all products: a loop of them would not be unrolled for every card."""

        @jit
        def one_read(x_at, w_at, i, n_in, held, lanes):
            read(x_at, w_at, i + u * WIDE, n_in, u * per_step, held)
            follow(x_at, w_at, i, n_in, held, lanes)

        @jit
        def one_product(x_at, w_at, i, n_in, held, lanes):
            compute((u - STEPS) * per_step, held, lanes)
            follow(x_at, w_at, i, n_in, held, lanes)

        return one_read if u < STEPS else one_product

    steps = no_more
    for u in reversed(range(2 * STEPS)):
        steps = written_out(u, steps)

    @jit
    def advance(x_at, w_at, begin, end, n_in, thread, held, lanes):
        for i in range(begin + 2 * thread, end, BATCH):
            steps(x_at, w_at, i, n_in, held, lanes)

    return advance, STEPS * per_step


def _arrival(type_name: str, n_rows: int, target: Target):
    """Build `begin(...)`, which sends a block's weight rows on their way, and `bring(...)`, which does with all activations, in PARTS groups."""
    pitch_of, commit = WIDEN_TWO[type_name][1], copies(target, 0).commit
    copy_weights, copy_row = copier(16, 0, 0, target, once=True), copier(16, 0, 0, target)

    @jit
    def begin(to, place, first, n_own, n_in, thread):
        """The outputs there are: what lies in the place of others is computed with and not stored."""
        pitch = np.int32(n_in * pitch_of)
        source = place + np.int64(first) * pitch
        for at in range(16 * thread, min(np.int32(OUTPUTS), np.int32(n_own - first)) * pitch, 16 * THREADS):
            copy_weights(to + at, source + at)
        commit()

    @jit
    def bring(to, x, n_in, per_part, thread):
        for part in range(PARTS):
            for r in range(n_rows):
                for i in range(part * per_part + 4 * thread, min(np.int32((part + 1) * per_part), n_in), 4 * THREADS):
                    copy_row(to + 4 * (r * n_in + i), x + 4 * (r * n_in + i))
            commit()

    return begin, bring


def _waits(target: Target):
    """Build `wait(part)`: until the weights and parts 0 .. part of the activations are there."""
    pending = [copies(target, PARTS - 1 - part).wait for part in range(PARTS)]
    first, second, third, last = pending

    @jit
    def wait(part):
        if part == 0:
            first()
        elif part == 1:
            second()
        elif part == 2:
            third()
        else:
            last()

    return wait


def _tree(n_rows: int):
    """Build `meet(...)`: sums of all outputs and rows from the threads' lanes, through shared memory at `at`, to address `out`."""
    n_sums = OUTPUTS * n_rows

    @jit
    def float_at(at):
        return from_bits(np.int32(shared_word(at)))

    @jit
    def meet(at, lanes, thread, first, n_own, out):
        for s in range(n_sums):
            place = at + 4 * (s * WIDE + 2 * thread)
            store_shared_float(place, lanes[2 * s])
            store_shared_float(place + 4, lanes[2 * s + 1])
        cuda.syncthreads()
        lane = thread & 31
        for s in range(thread >> 5, n_sums, THREADS // 32):
            own = at + 4 * (s * WIDE + lane)
            total = sum_row(tree8(
                float_at(own), float_at(own + 128), float_at(own + 256), float_at(own + 384), float_at(own + 512), float_at(own + 640),
                float_at(own + 768), float_at(own + 896),
            ))
            n, row = np.int32(first + s // n_rows), np.int32(s % n_rows)
            if lane == 0 and n < n_own:
                store_global_float(out + 4 * (np.int64(row) * n_own + n), total)

    return meet, 2 * n_sums


@cache
def long_rows(type_name: str, n_rows: int, target: Target):
    """Return the kernel for exactly n_rows (up to MOST_ROWS) rows; grid: the blocks of both matrices, THREADS threads.

    kernel(weights, other, n_in, n_out, n_other, x, out, other_out, ahead, n_ahead, more, n_more): two matrices of the same input, the
    second's blocks behind the first's; n_other may be 0.  ahead, more: addresses of what is asked for, n_ahead and n_more bytes.
    """
    advance, n_held = _chains(type_name, n_rows)
    begin, bring = _arrival(type_name, n_rows, target)
    (meet, n_lanes), value_bytes, wait = _tree(n_rows), WIDEN_TWO[type_name][1], _waits(target)
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    ask, is_early = asking(target), ASK_EARLY

    @kernel(THREADS)
    def run(weights, other, n_in, n_out, n_other, x, out, other_out, ahead, n_ahead, more, n_more):
        x_at = shared_address(cuda.shared.array(0, types.uint8))
        held, lanes = cuda.local.array(n_held, np.float32), cuda.local.array(n_lanes, np.float32)
        thread, block = np.int32(cuda.threadIdx.x), np.int32(cuda.blockIdx.x)
        n_first = np.int32((n_out + OUTPUTS - 1) // OUTPUTS)
        is_other = block >= n_first
        place = global_address(other) if is_other else global_address(weights)
        results = global_address(other_out) if is_other else global_address(out)
        n_own = n_other if is_other else n_out
        first = np.int32((block - n_first if is_other else block) * OUTPUTS)
        w_at = x_at + 4 * n_rows * n_in
        begin(w_at, place, first, n_own, n_in, thread)
        go_on()
        for v in range(n_lanes):
            lanes[v] = ZERO
        n_blocks = np.int32(cuda.gridDim.x)
        if is_early:
            ask(ahead, n_ahead, block, n_blocks, thread, np.int32(THREADS))
            ask(more, n_more, block, n_blocks, thread, np.int32(THREADS))
        wait_before()
        per_part = np.int32((n_in // BATCH + PARTS - 1) // PARTS * BATCH)
        bring(x_at, global_address(x), n_in, per_part, thread)
        if not is_early:
            ask(ahead, n_ahead, block, n_blocks, thread, np.int32(THREADS))
            ask(more, n_more, block, n_blocks, thread, np.int32(THREADS))
        part = i = np.int32(0)
        while i < n_in:
            following = min(np.int32(i + per_part), n_in)
            wait(part)
            cuda.syncthreads()
            advance(x_at, w_at, i, following, n_in, thread, held, lanes)
            part, i = np.int32(part + 1), following
        meet(w_at + OUTPUTS * value_bytes * n_in, lanes, thread, first, n_own, results)

    return run
