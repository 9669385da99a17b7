"""Products of a few activation rows with float weights (bfloat16, float16 or float32): 256 lanes.

The order of host/float_products.py: element i belongs to lane i mod 256, a lane is a chain in ascending i, the halving tree
sums the lanes.  A team of 8 warps (long rows) or one warp (short rows) computes an output.  Thread t of warp q holds the
lanes t + 32 m, m = q, or all eight m: the tree's first three levels join lanes of equal t (inside the thread, or through
shared memory), the last five are exchanges inside a warp.  An output's whole weight row is copied to shared memory at once,
before the activations are known.

Shapes: weights uint8 (raw bytes of [n_out, n_in]); x float32 [rows * n_in]; out float32 [rows * n_out].
Does not know: what the products are for.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.addresses import copier, global_address, shared_address, shared_half_word, shared_word
from strata.cuda.on_cuda import tree8
from strata.cuda.seam import (
    Target, add, brain, copies, exchange_float, fma, from_bits, half, jit, kernel, launch_dependents, wait_for_dependency,
)
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
MOST_ROWS = 8
LONG_ROW = 1024
"""Columns from which eight warps share an output."""
BLOCKS = 660
"""Blocks of short rows: five for each multiprocessor of a large card."""


@jit
def _brain_at(at):
    return brain(shared_half_word(at))


@jit
def _half_at(at):
    return half(shared_half_word(at))


@jit
def _float_at(at):
    return from_bits(np.int32(shared_word(at)))


WIDEN = {"BF16": (_brain_at, 2), "F16": (_half_at, 2), "F32": (_float_at, 4)}
"""By type name: `load(shared address)`, and bytes per value."""


@dataclass(frozen=True, slots=True)
class FloatShape:
    """How a launch is cut: warps per output, outputs at a time and in all per block, bytes of shared memory."""

    n_warps: int
    n_together: int
    n_outputs: int
    pitch: int
    shared_bytes: int

    @property
    def n_threads(self) -> int:
        return 32 * self.n_warps * self.n_together


def shape_of(type_name: str, n_in: int, n_out: int, n_rows: int) -> FloatShape:
    """Return the cut for a product: long rows one output a block, short rows four warps with several outputs each."""
    pitch = (n_in * WIDEN[type_name][1] + 31) // 16 * 16
    if n_in >= LONG_ROW:
        return FloatShape(8, 1, 1, pitch, pitch + n_rows * WIDE * 4)
    n_outputs = 4 * max(1, min(8, n_out // (4 * BLOCKS)))
    return FloatShape(1, 4, n_outputs, pitch, n_outputs * pitch)


@jit
def sum_in_warp(v):
    """Sum one value of each of the 32 threads of a warp by the halving tree; every thread gets the sum."""
    v = add(v, exchange_float(v, np.int32(16)))
    v = add(v, exchange_float(v, np.int32(8)))
    v = add(v, exchange_float(v, np.int32(4)))
    v = add(v, exchange_float(v, np.int32(2)))
    return add(v, exchange_float(v, np.int32(1)))


def _lane_sums(type_name: str, n_rows: int, n_held: int):
    """Build `advance(...)`: a thread's chains over its elements; it holds n_held (1 or 8) lanes for each of n_rows rows."""
    widen, value_bytes = WIDEN[type_name]
    step = WIDE // n_held

    @jit
    def advance(row_at, x, first, n_in, lanes):
        """`first`: the thread's first lane; x: the array; row_at: address of the weight row."""
        whole = n_in & -WIDE
        for begin in range(0, whole, WIDE):
            for k in range(n_held):
                i = begin + first + step * k
                w = widen(row_at + i * value_bytes)
                for r in range(n_rows):
                    lanes[n_held * r + k] = fma(w, x[np.int64(r) * n_in + i], lanes[n_held * r + k])
        for k in range(n_held):
            i = whole + first + step * k
            if i < n_in:
                w = widen(row_at + i * value_bytes)
                for r in range(n_rows):
                    lanes[n_held * r + k] = fma(w, x[np.int64(r) * n_in + i], lanes[n_held * r + k])

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
def long_rows(type_name: str, n_rows: int, target: Target):
    """Return the kernel for rows of LONG_ROW columns or more: one output a block of 256 threads.

    kernel(weights, n_in, n_out, n_outputs, pitch, x, out).
    """
    fetch, advance = _row_fetcher(target, WIDEN[type_name][1]), _lane_sums(type_name, n_rows, 1)
    done = copies(target, 0)
    commit, wait_all = done.commit, done.wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @kernel(WIDE)
    def run(weights, n_in, n_out, n_outputs, pitch, x, out):
        shared, floats = shared_address(cuda.shared.array(0, types.uint8)), cuda.shared.array(0, types.float32)
        thread, n = np.int32(cuda.threadIdx.x), np.int32(cuda.blockIdx.x)
        before = fetch(shared, global_address(weights), n, n_in, thread, WIDE)
        commit()
        go_on()
        wait_before()
        lanes = cuda.local.array(n_rows, np.float32)
        for r in range(n_rows):
            lanes[r] = ZERO
        wait_all()
        cuda.syncthreads()
        advance(shared + before, x, thread, n_in, lanes)
        meeting = (pitch >> 2) + thread
        for r in range(n_rows):
            floats[meeting + WIDE * r] = lanes[r]
        cuda.syncthreads()
        warp, in_warp = thread >> 5, thread & 31
        if warp < n_rows:
            at = (pitch >> 2) + WIDE * warp + in_warp
            total = sum_in_warp(tree8(
                floats[at], floats[at + 32], floats[at + 64], floats[at + 96], floats[at + 128], floats[at + 160],
                floats[at + 192], floats[at + 224],
            ))
            if in_warp == 0:
                out[np.int64(warp) * n_out + n] = total

    return run


@cache
def short_rows(type_name: str, n_rows: int, target: Target):
    """Return the kernel for rows below LONG_ROW columns: n_outputs outputs a block of four warps, one a warp at a time.

    kernel(weights, n_in, n_out, n_outputs, pitch, x, out).
    """
    fetch, advance = _row_fetcher(target, WIDEN[type_name][1]), _lane_sums(type_name, n_rows, 8)
    done = copies(target, 0)
    commit, wait_all = done.commit, done.wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    n_lanes, value_bytes = 8 * n_rows, WIDEN[type_name][1]

    @kernel(128, 4)
    def run(weights, n_in, n_out, n_outputs, pitch, x, out):
        shared, place = shared_address(cuda.shared.array(0, types.uint8)), global_address(weights)
        in_warp, warp = np.int32(cuda.threadIdx.x) & 31, np.int32(cuda.threadIdx.x) >> 5
        first = np.int32(np.int32(cuda.blockIdx.x) * np.int32(n_outputs))
        for k in range(warp, n_outputs, 4):
            if first + k < n_out:
                fetch(shared + k * pitch, place, np.int32(first + k), n_in, in_warp, 32)
        commit()
        go_on()
        wait_before()
        wait_all()
        cuda.syncthreads()
        lanes = cuda.local.array(n_lanes, np.float32)
        for k in range(warp, n_outputs, 4):
            n = np.int32(first + k)
            if n < n_out:
                for v in range(n_lanes):
                    lanes[v] = ZERO
                before = (np.int64(n) * n_in * value_bytes) & 15
                advance(shared + (k * pitch + before), x, in_warp, n_in, lanes)
                for r in range(n_rows):
                    v = 8 * r
                    total = sum_in_warp(tree8(
                        lanes[v], lanes[v + 1], lanes[v + 2], lanes[v + 3], lanes[v + 4], lanes[v + 5], lanes[v + 6], lanes[v + 7]
                    ))
                    if in_warp == 0:
                        out[np.int64(r) * n_out + n] = total

    return run
