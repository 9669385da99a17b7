"""The ordered merge of attention's splits, the output gate, and the codes of the result.

A block has one head of one row, a thread one dimension.  Values of 64 splits at a time are read ahead; their factors are made
side by side (each thread of the first warp goes through the running maxima by itself and keeps those around its two splits), then
every thread goes through the splits in ascending order: the formula and order of host/attention.py.  Shapes as in attention.py.  Does not know: cells.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.attention_parts import SPLIT, ZERO, AttentionShape, output_gate
from strata.cuda.on_cuda import exp
from strata.cuda.seam import Target, fma, jit, kernel, launch_dependents, mul, sub, wait_for_dependency

TURN = 64
"""Splits whose values are read ahead and whose factors are made at once, two by each thread of a warp: 32 to 64."""


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
    def make_factors(n, lane, is_first, carried, top_of, old_of, new_of):
        """Factors of the n splits whose maxima are in top_of; `carried` is the maximum before them; returns that with them."""
        highest = before = after = before_second = after_second = carried
        for s in range(TURN):
            top = top_of[s]
            if s == lane:
                before = highest
            if s == lane + 32:
                before_second = highest
            if s < n:
                highest = top if is_first and s == 0 else _larger(highest, top)
            if s == lane:
                after = highest
            if s == lane + 32:
                after_second = highest
        old_of[lane], new_of[lane] = exp(sub(before, after)), exp(sub(top_of[lane], after))
        if n > 32:
            old_of[lane + 32], new_of[lane + 32] = exp(sub(before_second, after_second)), exp(sub(top_of[lane + 32], after_second))
        return highest

    @kernel(size)
    def run(tops, totals, triples, positions, counts, n_splits, projected, out, gated, codes, turned, scales, sums):
        top_of = cuda.shared.array(TURN, np.float32)
        old_of = cuda.shared.array(TURN, np.float32)
        new_of = cuda.shared.array(TURN, np.float32)
        total_of = cuda.shared.array(TURN, np.float32)
        ahead = cuda.local.array(TURN, np.float32)
        go_on()
        wait_before()
        head, row, dim = np.int32(cuda.blockIdx.x), np.int32(cuda.blockIdx.y), np.int32(cuda.threadIdx.x)
        count = positions[row] + 1 if dense else counts[row]
        n_here = np.int32((count + SPLIT - 1) // SPLIT)
        at = (np.int64(row) * n_q + head) * n_splits
        value = total = carried = ZERO
        for first in range(0, n_here, TURN):
            n = min(np.int32(TURN), np.int32(n_here - first))
            source = (at + first) * size + dim
            # All loads at once: the chain below waits for none of them in turn.
            for s in range(TURN):
                if s < n:
                    ahead[s] = triples[source + s * size]
            for i in range(dim, TURN, size):
                top_of[i] = tops[at + first + i] if i < n else ZERO
                total_of[i] = totals[at + first + i] if i < n else ZERO
            cuda.syncthreads()
            if dim < 32:
                carried = make_factors(n, dim, first == 0, carried, top_of, old_of, new_of)
            cuda.syncthreads()
            for s in range(TURN):
                if s < n:
                    if s == 0 and first == 0:
                        value, total = ahead[0], total_of[0]
                    else:
                        value = fma(ahead[s], new_of[s], mul(value, old_of[s]))
                        total = fma(total_of[s], new_of[s], mul(total, old_of[s]))
            cuda.syncthreads()
        finish(value, total, row, head, dim, projected, out, gated, codes, turned, scales, sums)

    return run
