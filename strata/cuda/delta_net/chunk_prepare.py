"""Convolution, head norms and gates of many rows of the gated delta net: a warp goes through neighbouring rows of a head.

The operations and orders of host/gdn.py.  The taps of a head's channels stay in registers, as do the last rows that the convolution
looks back to; each row's own values are fetched one row ahead.  Shapes as in gdn.py.  Does not know: the scan.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.machine.on_cuda import exp, sigmoid, softplus
from strata.cuda.machine.seam import Target, add, div, fma, jit, kernel, launch_dependents, mul, sqrt, wait_for_dependency
from strata.cuda.machine.silus import silus
from strata.cuda.machine.warps import ONE, sum_row

ZERO = np.float32(0.0)
WARPS = 8
THREADS = 32 * WARPS
MIN_BLOCKS = 3
"""Blocks that a multiprocessor should hold: bounds the registers."""
RUN, FEW_ROWS = 8, 128
"""Rows of a warp, and of windows in which it has one: these would not fill a card."""


def run_of(n_rows: int) -> int:
    """Return how many rows a warp goes through."""
    return RUN if n_rows > FEW_ROWS else 1


def _gates(n_v_heads: int):
    """Build `gates(alpha, beta, bias, decay, row, thread, out_g, out_beta)`."""

    @jit
    def gates(alpha, beta, bias, decay, row, thread, out_g, out_beta):
        for h in range(thread, n_v_heads, 32):
            at = row * n_v_heads + h
            out_g[at] = exp(mul(softplus(add(alpha[at], bias[h])), decay[h]))
            out_beta[at] = sigmoid(beta[at])

    return gates


@cache
def prepare_kernel(size: int, n_k_heads: int, n_v_heads: int, n_taps: int, n_run: int, target: Target):
    """Return the kernel; grid (units / WARPS, rows / n_run), a unit is a head or the gates.

    kernel(u, alpha, beta, tail, conv, bias, decay, eps, segment_of_row, first, slot, n_rows, w, out_g, out_beta).
    """
    per_thread, n_heads, depth = size // 32, 2 * n_k_heads + n_v_heads, n_taps - 1
    channels, n_weights, n_past = n_heads * size, per_thread * n_taps, per_thread * (n_taps - 1)
    gates, silu_all = _gates(n_v_heads), silus(per_thread)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @jit
    def look_back(u, tail, row, begin, place, channel, past):
        """past[depth m + tap] = the value `depth - tap` rows before `row`."""
        for m in range(per_thread):
            for tap in range(depth):
                source = row - depth + tap
                if source >= begin:
                    past[depth * m + tap] = u[np.int64(source) * channels + channel + 32 * m]
                else:
                    past[depth * m + tap] = tail[(np.int64(place) * depth + source - begin + depth) * channels + channel + 32 * m]

    @jit
    def convolve(values, taps, past):
        """In place: values[m] becomes silu of its channel's convolution; past moves on by a row."""
        for m in range(per_thread):
            new = values[m]
            total = mul(taps[n_taps * m], past[depth * m])
            for tap in range(1, depth):
                total = fma(taps[n_taps * m + tap], past[depth * m + tap], total)
            values[m] = fma(taps[n_taps * m + depth], new, total)
            for tap in range(depth - 1):
                past[depth * m + tap] = past[depth * m + tap + 1]
            past[depth * m + depth - 1] = new
        silu_all(values)

    @kernel(THREADS, MIN_BLOCKS)
    def run(u, alpha, beta, tail, conv, bias, decay, eps, segment_of_row, first, slot, n_rows, w, out_g, out_beta):
        values, coming = cuda.local.array(per_thread, np.float32), cuda.local.array(per_thread, np.float32)
        taps, past = cuda.local.array(n_weights, np.float32), cuda.local.array(n_past, np.float32)
        go_on()
        thread = np.int32(cuda.threadIdx.x) & 31
        unit = np.int32(cuda.blockIdx.x) * WARPS + (np.int32(cuda.threadIdx.x) >> 5)
        first_row = np.int32(np.int32(cuda.blockIdx.y) * n_run)
        end = min(np.int32(first_row + n_run), np.int32(n_rows))
        channel = unit * size + thread
        if unit < n_heads:
            for m in range(per_thread):
                for tap in range(n_taps):
                    taps[n_taps * m + tap] = conv[(channel + 32 * m) * n_taps + tap]
        wait_before()
        if unit > n_heads:
            return
        if unit == n_heads:
            for row in range(first_row, end):
                gates(alpha, beta, bias, decay, row, thread, out_g, out_beta)
            return
        segment = segment_of_row[first_row]
        look_back(u, tail, first_row, first[segment], slot[segment], channel, past)
        for m in range(per_thread):
            coming[m] = u[np.int64(first_row) * channels + channel + 32 * m]
        for row in range(first_row, end):
            base, following = np.int64(row) * channels + channel, min(np.int32(row + 1), np.int32(end - 1))
            for m in range(per_thread):
                values[m] = coming[m]
                coming[m] = u[np.int64(following) * channels + channel + 32 * m]
            if row > first_row and segment_of_row[row] != segment:
                segment = segment_of_row[row]
                look_back(u, tail, np.int32(row), first[segment], slot[segment], channel, past)
            convolve(values, taps, past)
            if unit < 2 * n_k_heads:
                total = ZERO
                for m in range(per_thread):
                    total = fma(values[m], values[m], total)
                scale = div(ONE, sqrt(add(sum_row(total), eps)))
                for m in range(per_thread):
                    values[m] = mul(values[m], scale)
            for m in range(per_thread):
                w[base + 32 * m] = values[m]

    return run
