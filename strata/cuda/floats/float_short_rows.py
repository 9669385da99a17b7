"""Products of one or two activation rows with short float weight rows: 256 lanes, a warp an output.

The order of host/float_products.py: element i belongs to lane i mod 256, a lane is a chain in ascending i, the halving tree
sums the lanes.  Thread t holds the lanes t + 32 m, m = 0 .. 7: the tree's first three levels join lanes inside the thread,
the last five are exchanges.  Weight rows are copied to shared memory at once, before the activations are known.

Shapes: weights uint8 (raw bytes of [n_out, n_in]); x float32 [rows * n_in]; out float32 [rows * n_out].
Does not know: what the products are for.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.machine.addresses import copier, global_address, shared_address, shared_float, shared_half_word
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.seam import (
    Target, add, brain, copies, exchange_float, fma, half, jit, kernel, launch_dependents, wait_for_dependency,
)
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
N_WARPS = 4
N_HELD = 8
MOST_ROWS = 2
BLOCKS = 660
"""Blocks of a launch: five for each multiprocessor of a large card."""


@jit
def _brain_at(at):
    return brain(shared_half_word(at))


@jit
def _half_at(at):
    return half(shared_half_word(at))


WIDEN = {"BF16": (_brain_at, 2), "F16": (_half_at, 2), "F32": (shared_float, 4)}
"""By type name: `load(shared address)`, and bytes per value."""


def outputs_per_block(n_out: int) -> int:
    """Return how many outputs a block computes: its warps take turns."""
    return N_WARPS * max(1, min(8, n_out // (N_WARPS * BLOCKS)))


def row_pitch(type_name: str, n_in: int) -> int:
    """Return the bytes of shared memory for one weight row."""
    return (n_in * WIDEN[type_name][1] + 31) // 16 * 16


@jit
def sum_in_warp(v):
    """Sum one value of each of the 32 threads of a warp by the halving tree; every thread gets the sum."""
    v = add(v, exchange_float(v, np.int32(16)))
    v = add(v, exchange_float(v, np.int32(8)))
    v = add(v, exchange_float(v, np.int32(4)))
    v = add(v, exchange_float(v, np.int32(2)))
    return add(v, exchange_float(v, np.int32(1)))


def _lane_sums(type_name: str, n_rows: int):
    """Build `advance(...)`: a thread's chains over its elements; it holds N_HELD lanes for each of n_rows rows."""
    widen, value_bytes = WIDEN[type_name]
    step = WIDE // N_HELD

    @jit
    def advance(row_at, x, first, n_in, lanes):
        """`first`: the thread's first lane; x: the array; row_at: address of the weight row."""
        whole = n_in & -WIDE
        for begin in range(0, whole, WIDE):
            for k in range(N_HELD):
                i = begin + first + step * k
                w = widen(row_at + i * value_bytes)
                for r in range(n_rows):
                    lanes[N_HELD * r + k] = fma(w, x[np.int64(r) * n_in + i], lanes[N_HELD * r + k])
        for k in range(N_HELD):
            i = whole + first + step * k
            if i < n_in:
                w = widen(row_at + i * value_bytes)
                for r in range(n_rows):
                    lanes[N_HELD * r + k] = fma(w, x[np.int64(r) * n_in + i], lanes[N_HELD * r + k])

    return advance


def _row_fetcher(target: Target, value_bytes: int):
    """Build `fetch(to, weights, n, n_in, thread, n_threads) -> bytes before the row`: one whole weight row."""
    copy16 = copier(16, 0, 0, target)

    @jit
    def fetch(to, weights, n, n_in, thread, n_threads):
        start = np.int64(n) * n_in * value_bytes
        before = start & 15
        for piece in range(thread, (before + n_in * value_bytes + 15) >> 4, n_threads):
            copy16(to + 16 * piece, weights + (start - before + 16 * piece))
        return before

    return fetch


@cache
def short_rows(type_name: str, n_rows: int, target: Target):
    """Return the kernel for n_rows (1 .. MOST_ROWS) rows: n_outputs outputs a block of four warps, one a warp at a time.

    kernel(weights, n_in, n_out, n_outputs, pitch, x, out).
    """
    fetch, advance = _row_fetcher(target, WIDEN[type_name][1]), _lane_sums(type_name, n_rows)
    done = copies(target, 0)
    commit, wait_all = done.commit, done.wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    n_lanes, value_bytes = N_HELD * n_rows, WIDEN[type_name][1]

    @kernel(32 * N_WARPS, 4)
    def run(weights, n_in, n_out, n_outputs, pitch, x, out):
        shared, place = shared_address(cuda.shared.array(0, types.uint8)), global_address(weights)
        in_warp, warp = np.int32(cuda.threadIdx.x) & 31, np.int32(cuda.threadIdx.x) >> 5
        first = np.int32(np.int32(cuda.blockIdx.x) * np.int32(n_outputs))
        for k in range(warp, n_outputs, N_WARPS):
            if first + k < n_out:
                fetch(shared + k * pitch, place, np.int32(first + k), n_in, in_warp, 32)
        commit()
        wait_before()
        wait_all()
        cuda.syncthreads()
        lanes = cuda.local.array(n_lanes, np.float32)
        for k in range(warp, n_outputs, N_WARPS):
            n = np.int32(first + k)
            if n < n_out:
                for v in range(n_lanes):
                    lanes[v] = ZERO
                before = (np.int64(n) * n_in * value_bytes) & 15
                advance(shared + (k * pitch + before), x, in_warp, n_in, lanes)
                for r in range(n_rows):
                    v = N_HELD * r
                    total = sum_in_warp(tree8(
                        lanes[v], lanes[v + 1], lanes[v + 2], lanes[v + 3], lanes[v + 4], lanes[v + 5], lanes[v + 6], lanes[v + 7]
                    ))
                    if in_warp == 0:
                        out[np.int64(r) * n_out + n] = total
        go_on()

    return run
