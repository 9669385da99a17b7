"""Products of many activation rows with float weights: 256 lanes, a thread a lane, tiles of 8 x 8 outputs.

The order of host/float_products.py.  Thread l of a set of 256 holds lane l of all 64 outputs of a tile; the lanes of 32
outputs at a time then meet in shared memory, where eight threads an output sum 32 lanes each (lanes of equal l mod 8,
in the tree's order) and exchange the last three steps.  Shapes as in float_rows.py.  Does not know: what it is for.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.seam import (
    Target, add, brain, exchange_float, fma, half, jit, kernel, launch_dependents, load_u16, wait_for_dependency,
)
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
SIDE = 8
SETS = 2
OUTPUTS_PER_BLOCK = SIDE * SETS
THREADS = WIDE * SETS
PITCH = WIDE + 8
"""Floats per output in shared memory: 32 threads that read 4 outputs x 8 lanes meet 32 banks."""
SHARED_BYTES = SETS * 32 * PITCH * 4


@jit
def _brain_at(raw, at):
    return brain(load_u16(raw, at))


@jit
def _half_at(raw, at):
    return half(load_u16(raw, at))


@jit
def _float_at(raw, at):
    return raw[at]


WIDEN = {"BF16": (_brain_at, 2), "F16": (_half_at, 2), "F32": (_float_at, 1)}
"""By type name: `load(raw, at)` and the step of `at` per value; F32 takes a float32 array, the others raw bytes."""


@jit
def _sum_of_output(floats, at, residue):
    """Sum 256 lanes from floats[at] by the halving tree; eight neighbouring threads, residue = thread mod 8."""
    sums = cuda.local.array(16, np.float32)
    for k in range(16):
        low = at + residue + 8 * k
        sums[k] = add(floats[low], floats[low + 128])
    for k in range(8):
        sums[k] = add(sums[k], sums[k + 8])
    for k in range(4):
        sums[k] = add(sums[k], sums[k + 4])
    total = add(add(sums[0], sums[2]), add(sums[1], sums[3]))
    total = add(total, exchange_float(total, np.int32(4)))
    total = add(total, exchange_float(total, np.int32(2)))
    return add(total, exchange_float(total, np.int32(1)))


@cache
def float_tiles(type_name: str, target: Target):
    """Return the kernel (weights, n_in, n_out, n_rows, x, out); grid (n_out / OUTPUTS_PER_BLOCK, n_rows / SIDE), rounded up."""
    widen, step = WIDEN[type_name]
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @kernel(THREADS)
    def run(weights, n_in, n_out, n_rows, x, out):
        floats = cuda.shared.array(0, types.float32)
        wait_before()
        lane, which = np.int32(cuda.threadIdx.x) & 255, np.int32(cuda.threadIdx.x) >> 8
        first_output = np.int32(np.int32(cuda.blockIdx.x) * OUTPUTS_PER_BLOCK + which * SIDE)
        first_row = np.int32(np.int32(cuda.blockIdx.y) * SIDE)
        lanes = cuda.local.array(64, np.float32)
        for v in range(64):
            lanes[v] = ZERO
        weight_at, x_at = cuda.local.array(8, np.int64), cuda.local.array(8, np.int64)
        for k in range(8):
            weight_at[k] = np.int64(min(np.int32(first_output + k), np.int32(n_out - 1))) * n_in
            x_at[k] = np.int64(min(np.int32(first_row + k), np.int32(n_rows - 1))) * n_in
        w, v = cuda.local.array(8, np.float32), cuda.local.array(8, np.float32)
        for i in range(lane, n_in, WIDE):
            for k in range(8):
                w[k] = widen(weights, (weight_at[k] + i) * step)
                v[k] = x[x_at[k] + i]
            for o in range(8):
                for r in range(8):
                    lanes[8 * o + r] = fma(w[o], v[r], lanes[8 * o + r])
        place = np.int32(which * 32 * PITCH)
        for begin in range(0, 64, 32):
            cuda.syncthreads()
            for k in range(32):
                floats[place + k * PITCH + lane] = lanes[begin + k]
            cuda.syncthreads()
            mine = np.int32(begin + (lane >> 3))
            total = _sum_of_output(floats, place + (lane >> 3) * PITCH, lane & 7)
            n, row = np.int32(first_output + (mine >> 3)), np.int32(first_row + (mine & 7))
            if (lane & 7) == 0 and n < n_out and row < n_rows:
                out[np.int64(row) * n_out + n] = total
        go_on()

    return run
