"""Products of many activation rows with float weights: 256 lanes, a thread a lane.

The order of host/float_products.py.  Thread l of a set of 256 holds lane l of all outputs of a tile; the lanes of up to 32
outputs at a time then meet in shared memory, where eight threads an output sum 32 lanes each (lanes of equal l mod 8,
in the tree's order) and exchange the last three steps.  What a thread reads meets few products, so float_tiles.py is faster where
it fits and there is much to do; this is for few tiles (short chunks), few outputs (what counts there is to read the activations
once: 4 bytes an element for 4 products), and cards with less shared memory.

Shapes as in float_rows.py.  Does not know: what it is for.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.machine.seam import (
    Target, add, brain, exchange_float, fma, from_bits, half, jit, kernel, launch_dependents, load_u16, load_word,
    wait_for_dependency,
)
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
PITCH = WIDE + 8
"""Floats per output in shared memory: 32 threads that read 4 outputs x 8 lanes meet 32 banks."""


@dataclass(frozen=True, slots=True)
class LaneTile:
    """`sets` of 256 threads, each with `outputs` outputs of the same `rows` rows."""

    rows: int
    outputs: int
    sets: int

    @property
    def n_outputs(self) -> int:
        return self.outputs * self.sets

    @property
    def n_threads(self) -> int:
        return WIDE * self.sets

    @property
    def at_once(self) -> int:
        """Outputs of a set whose lanes meet at once."""
        return min(32, self.rows * self.outputs)

    @property
    def shared_bytes(self) -> int:
        return 4 * self.sets * self.at_once * PITCH


SQUARE, FEW_OUTPUTS = LaneTile(8, 8, 2), LaneTile(4, 4, 1)


@jit
def _brain_at(raw, at):
    return brain(load_u16(raw, at))


@jit
def _half_at(raw, at):
    return half(load_u16(raw, at))


@jit
def _float_at(raw, at):
    return from_bits(np.int32(load_word(raw, at)))


WIDEN = {"BF16": (_brain_at, 2), "F16": (_half_at, 2), "F32": (_float_at, 4)}
"""By type name: `load(raw, byte)` and bytes per value."""


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
def float_lanes(type_name: str, tile: LaneTile, target: Target):
    """Return the kernel (weights, n_in, n_out, n_rows, x, out); grid (n_out / tile.n_outputs, n_rows / tile.rows), rounded up."""
    widen, step = WIDEN[type_name]
    n_rows_here, outputs, n_sums, at_once = tile.rows, tile.outputs, tile.rows * tile.outputs, tile.at_once
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    n_here = tile.n_outputs

    @kernel(tile.n_threads)
    def run(weights, n_in, n_out, n_rows, x, out):
        floats = cuda.shared.array(0, types.float32)
        wait_before()
        lane, which = np.int32(cuda.threadIdx.x) & 255, np.int32(cuda.threadIdx.x) >> 8
        first_output = np.int32(np.int32(cuda.blockIdx.x) * n_here + which * outputs)
        first_row = np.int32(np.int32(cuda.blockIdx.y) * n_rows_here)
        lanes = cuda.local.array(n_sums, np.float32)
        for v in range(n_sums):
            lanes[v] = ZERO
        weight_at, x_at = cuda.local.array(outputs, np.int64), cuda.local.array(n_rows_here, np.int64)
        for k in range(outputs):
            weight_at[k] = np.int64(min(np.int32(first_output + k), np.int32(n_out - 1))) * n_in
        for k in range(n_rows_here):
            x_at[k] = np.int64(min(np.int32(first_row + k), np.int32(n_rows - 1))) * n_in
        w, v = cuda.local.array(outputs, np.float32), cuda.local.array(n_rows_here, np.float32)
        for i in range(lane, n_in, WIDE):
            for k in range(outputs):
                w[k] = widen(weights, (weight_at[k] + i) * step)
            for k in range(n_rows_here):
                v[k] = x[x_at[k] + i]
            for o in range(outputs):
                for r in range(n_rows_here):
                    lanes[n_rows_here * o + r] = fma(w[o], v[r], lanes[n_rows_here * o + r])
        place = np.int32(which * at_once * PITCH)
        for begin in range(0, n_sums, at_once):
            cuda.syncthreads()
            for k in range(at_once):
                floats[place + k * PITCH + lane] = lanes[begin + k]
            cuda.syncthreads()
            if (lane >> 3) < at_once:
                mine = np.int32(begin + (lane >> 3))
                total = _sum_of_output(floats, place + (lane >> 3) * PITCH, lane & 7)
                n, row = np.int32(first_output + mine // n_rows_here), np.int32(first_row + mine % n_rows_here)
                if (lane & 7) == 0 and n < n_out and row < n_rows:
                    out[np.int64(row) * n_out + n] = total
        go_on()

    return run
