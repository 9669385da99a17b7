"""The ordered merge of attention's splits, the output gate, and the codes of the result.

A block has one head of one row, a thread one dimension.  Factors of 32 splits at a time are made side by side (each thread of
the first warp finds the running maximum before its split by itself), then every thread goes through the splits in ascending
order: the formula and order of host/attention.py.  Shapes as in attention.py.  Does not know: cells.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.attention_parts import SPLIT, ZERO, AttentionShape, output_gate
from strata.cuda.on_cuda import exp
from strata.cuda.seam import Target, fma, jit, kernel, launch_dependents, mul, sub, sync_warp, wait_for_dependency

TURN = 32
"""Splits whose factors are made at once."""


@jit
def _larger(old, new):
    return new if new > old else old


@cache
def merge_kernel(shape: AttentionShape, target: Target):
    """Return the kernel; grid (heads, rows), D threads.

    kernel(tops, totals, triples, positions, counts, n_splits, projected, out, gated, codes, turned, scales, sums).
    """
    n_q, size, dense = shape.n_q, shape.size, shape.dense
    finish = output_gate(shape, target)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @jit
    def make_factors(tops, at, first, n, lane, carried, top_of, old_of, new_of):
        """Factors of splits first .. first + n - 1; `carried` is the maximum before them; returns the maximum with them."""
        if lane < n:
            top_of[lane] = tops[at + first + lane]
        sync_warp()
        highest = carried
        for s in range(n):
            fresh = first + s == 0
            before = highest
            highest = top_of[s] if fresh else _larger(before, top_of[s])
            if s == lane and not fresh:
                old_of[lane], new_of[lane] = exp(sub(before, highest)), exp(sub(top_of[s], highest))
        return highest

    @kernel(size)
    def run(tops, totals, triples, positions, counts, n_splits, projected, out, gated, codes, turned, scales, sums):
        top_of = cuda.shared.array(TURN, np.float32)
        old_of = cuda.shared.array(TURN, np.float32)
        new_of = cuda.shared.array(TURN, np.float32)
        total_of = cuda.shared.array(TURN, np.float32)
        go_on()
        wait_before()
        head, row, dim = np.int32(cuda.blockIdx.x), np.int32(cuda.blockIdx.y), np.int32(cuda.threadIdx.x)
        count = positions[row] + 1 if dense else counts[row]
        n_here = (count + SPLIT - 1) // SPLIT
        at = (np.int64(row) * n_q + head) * n_splits
        value = total = carried = ZERO
        for first in range(0, n_here, TURN):
            n = min(np.int32(TURN), np.int32(n_here - first))
            if dim < TURN:
                if dim < n:
                    total_of[dim] = totals[at + first + dim]
                carried = make_factors(tops, at, first, n, dim, carried, top_of, old_of, new_of)
            cuda.syncthreads()
            for s in range(n):
                fresh = triples[(at + first + s) * size + dim]
                if first + s == 0:
                    value, total = fresh, total_of[0]
                else:
                    value = fma(fresh, new_of[s], mul(value, old_of[s]))
                    total = fma(total_of[s], new_of[s], mul(total, old_of[s]))
            cuda.syncthreads()
        finish(value, total, row, head, dim, projected, out, gated, codes, turned, scales, sums)

    return run
