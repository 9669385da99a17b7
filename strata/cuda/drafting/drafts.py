"""Small steps of the draft layer on a card: the streams' sum, and the pick of a draft with its probability.

The orders of host/drafts.py and host/draft_picks.py: Q[c] = hidden product + e, one addition; the largest key, then the lower
index; probability = 1 / sum of exp(l - top) in 256 lanes, a chain per lane, then the halving tree.  Flat shapes: made, hidden
[rows, C, H]; e [rows, H]; logits [rows, n]; best int32, probability float32 [rows].  Does not know: ids, cells.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.on_cuda import exp, key
from strata.cuda.machine.seam import Target, add, div, kernel, launch_dependents, sub, wait_for_dependency
from strata.cuda.machine.warps import ONE, integers, smallest_int, sum_row
from strata.model.config import ModelConfig
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
THREADS = 256
NOBODY = np.int32(0x7FFFFFFF)
LOWEST = np.int32(-0x80000000)


@cache
def add_kernel(target: Target):
    """Return kernel(made, e, hidden, n_streams, n_values): made[row, c] += e[row]."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(made, e, hidden, n_streams, n_values):
        go_on()
        wait_before()
        i = np.int64(cuda.blockIdx.x) * THREADS + np.int32(cuda.threadIdx.x)
        if i < n_values:
            made[i] = add(made[i], e[i // (n_streams * hidden) * hidden + i % hidden])

    return run


@cache
def pick_kernel(target: Target):
    """Return kernel(logits, n, best, probability); grid (rows), WIDE threads: a thread is a lane."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)
    largest, n_warps = integers(target).largest, WIDE // 32

    @kernel(WIDE)
    def run(logits, n, best, probability):
        keys = cuda.shared.array(n_warps, np.int32)
        places = cuda.shared.array(n_warps, np.int32)
        lanes = cuda.shared.array(WIDE, np.float32)
        go_on()
        wait_before()
        row, thread = np.int64(cuda.blockIdx.x), np.int32(cuda.threadIdx.x)
        own_key, own = LOWEST, NOBODY
        for i in range(thread, n, WIDE):
            k = key(logits[row * n + i])
            if own == NOBODY or k > own_key:
                own_key, own = k, np.int32(i)
        top_key = largest(own_key)
        place = smallest_int(own if own_key == top_key else NOBODY)
        if thread & 31 == 0:
            keys[thread >> 5], places[thread >> 5] = top_key, place
        cuda.syncthreads()
        warp = thread & (n_warps - 1)
        top_key = largest(keys[warp])
        place = smallest_int(places[warp] if keys[warp] == top_key else NOBODY)
        top = logits[row * n + place]
        total = ZERO
        for i in range(thread, n, WIDE):
            total = add(total, exp(sub(logits[row * n + i], top)))
        lanes[thread] = total
        cuda.syncthreads()
        if thread < 128:
            lanes[thread] = add(lanes[thread], lanes[thread + 128])
        cuda.syncthreads()
        if thread < 64:
            lanes[thread] = add(lanes[thread], lanes[thread + 64])
        cuda.syncthreads()
        if thread < 32:
            total = sum_row(add(lanes[thread], lanes[thread + 32]))
            if thread == 0:
                best[row], probability[row] = place, div(ONE, total)

    return run


def launch_add_to_streams(device: CudaDevice, config: ModelConfig, made, e, n_rows: int, programmatic: bool = False) -> Launch:
    """In place: every stream of made [rows, C, H] plus e [rows, H]."""
    n_values = n_rows * config.residual_width
    arguments = (made, e, np.int32(config.hidden), np.int32(config.n_streams), np.int64(n_values))
    return Launch(device, add_kernel(device.target), Shape(((n_values + THREADS - 1) // THREADS, 1), THREADS), arguments, programmatic)


def launch_draft_picks(device: CudaDevice, logits, n_rows: int, n: int, best, probability, programmatic: bool = False) -> Launch:
    """best [rows] (indices) and probability [rows] of logits [rows, n], n >= 1."""
    return Launch(device, pick_kernel(device.target), Shape((n_rows, 1), WIDE), (logits, np.int32(n), best, probability), programmatic)
