"""The ordered merge of attention's splits, the output gate, and the codes of the result.

A warp has 32 neighbouring dimensions of one head of one row and works by itself: no warp waits for another.  Maxima, sums, the gate's
logits and the values of up to 64 splits are sent to shared memory at once, those of splits that the row lacks too: no load waits
for another or for the row's count.  Running maxima are a prefix over the warp (the earlier of equal ones stays, as in a chain), so that
each thread makes the factors of two splits; then all threads go through the splits in ascending order: the formula and order of
host/attention.py.  Loops stay loops: this code is run once, and fetching instructions costs more than computing.
Shapes as in split_attention.py.  Does not know: cells.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.attention.attention_parts import SPLIT, ZERO, AttentionShape, gated_output, larger
from strata.cuda.machine.addresses import copier, global_address, shared_address, shared_float, shared_four_floats, store_shared_float
from strata.cuda.machine.on_cuda import exp, sigmoid
from strata.cuda.machine.seam import (
    Target, copies, fma, jit, kernel, launch_dependents, mul, shuffle_float, sub, sync_warp, wait_for_dependency,
)

TURN = 64
"""Splits that are on their way at once, two by each thread of a warp."""
STEP = 8
"""Splits whose values and factors are read from shared memory before the first is used."""
HELD = 4 * STEP
WARPS = 2
FACTORS_AT = 128 * (TURN + STEP)
GATES_AT = FACTORS_AT + 16 * (TURN + STEP)
WARP_BYTES = GATES_AT + 128
"""A warp's shared memory: 32 values a split; (old factor, new factor, sum, maximum) of each; the gate's logits.  Reads end STEP behind."""
SHARED_BYTES = WARPS * WARP_BYTES


def grid_of(shape: AttentionShape) -> int:
    """Return the blocks of a row."""
    return -(-shape.n_q * shape.size // (32 * WARPS))


@jit
def _running_maximum(x, lane):
    """The largest of this lane's value and those of all lower lanes."""
    for bit in range(5):
        apart = np.int32(1 << bit)
        lower = shuffle_float(x, np.int32(max(lane - apart, np.int32(0))))
        x = larger(lower, x) if lane >= apart else x
    return x


@jit
def _put_factors(at, lane, carried, has_carried):
    """Replace a lane's two places at `at` by its split's factors; `carried` is the maximum before them, if any; return it with them."""
    top = shared_float(at + 12)
    after = _running_maximum(top, lane)
    after = larger(carried, after) if has_carried else after
    before = shuffle_float(after, np.int32(max(lane - 1, np.int32(0))))
    before = carried if lane == 0 and has_carried else before
    store_shared_float(at, exp(sub(before, after)))
    store_shared_float(at + 4, exp(sub(top, after)))
    return shuffle_float(after, np.int32(31))


@jit
def _go_through(values, factors, begin, n, value, total, held):
    """Merge a turn's splits begin .. n - 1, ascending; return the value and the sum."""
    for first in range(begin, n, STEP):
        for k in range(STEP):
            v = 4 * k
            held[v], held[v + 1], held[v + 2], _ = shared_four_floats(factors + 16 * first + 16 * k)
            held[v + 3] = shared_float(values + 128 * first + 128 * k)
        for k in range(STEP):
            if first + k < n:
                v = 4 * k
                total = fma(held[v + 2], held[v + 1], mul(total, held[v]))
                value = fma(held[v + 3], held[v + 1], mul(value, held[v]))
    return value, total


def _fetch(shape: AttentionShape, target: Target):
    """Build `ask(...)`: maxima and sums of n splits from place `at` on; `fetch(...)`: their values of 32 dimensions; each a group of copies."""
    split_bytes, commit = 4 * shape.size, copies(target, 0).commit
    copy16, copy_total, copy_top = copier(16, 0, 0, target), copier(4, 8, 0, target), copier(4, 12, 0, target)

    @jit
    def ask(factors, tops, totals, at, n, lane):
        for m in range(TURN // 32):
            i = lane + 32 * m
            if i < n:
                copy_top(factors + 16 * i, tops + 4 * (at + i))
                copy_total(factors + 16 * i, totals + 4 * (at + i))
        commit()

    @jit
    def fetch(values, triples, source, n, lane):
        to, source = values + 16 * lane, source + split_bytes * (lane >> 3) + 16 * (lane & 7)
        for i in range(0, n - (lane >> 3), 4):
            copy16(to + 128 * i, triples + source + split_bytes * i)
        commit()

    return ask, fetch


@cache
def merge_kernel(shape: AttentionShape, target: Target):
    """Return the kernel; grid (grid_of(shape), rows), 32 WARPS threads, SHARED_BYTES of shared memory.

    kernel(tops, totals, triples, positions, counts, n_splits, projected, out, gated, codes, turned, scales, sums).
    """
    n_q, size, dense, n_parts = shape.n_q, shape.size, shape.dense, shape.size // 32
    n_units, finish = n_q * n_parts, gated_output(shape, target)
    (ask, fetch), copy_gate = _fetch(shape, target), copier(4, 0, 0, target)
    wait_maxima, wait_all = copies(target, 1).wait, copies(target, 0).wait
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(32 * WARPS)
    def run(tops, totals, triples, positions, counts, n_splits, projected, out, gated, codes, turned, scales, sums):
        shared = cuda.shared.array(0, types.uint8)
        held = cuda.local.array(HELD, np.float32)
        go_on()
        row, lane, warp = np.int32(cuda.blockIdx.y), np.int32(cuda.threadIdx.x) & 31, np.int32(cuda.threadIdx.x) >> 5
        unit = min(np.int32(np.int32(cuda.blockIdx.x) * WARPS + warp), np.int32(n_units - 1))
        head, first_dim = unit // n_parts, 32 * (unit % n_parts)
        start = shared_address(shared) + WARP_BYTES * warp
        factors, gates = start + FACTORS_AT, start + (GATES_AT + 4 * lane)
        from_tops, from_totals, from_triples = global_address(tops), global_address(totals), global_address(triples)
        at = (np.int64(row) * n_q + head) * n_splits
        wait_before()
        copy_gate(gates, global_address(projected) + 4 * (2 * (np.int64(row) * n_q + head) * size + size + first_dim + lane))
        count = np.int32(positions[row] + 1) if dense else counts[row]
        value = total = carried = ZERO
        for first in range(0, n_splits, TURN):
            n_loaded = min(np.int32(TURN), np.int32(n_splits - first))
            ask(factors, from_tops, from_totals, at + first, n_loaded, lane)
            fetch(start, from_triples, 4 * ((at + first) * size + first_dim), n_loaded, lane)
            n = min(np.int32(TURN), np.int32((count + SPLIT - 1) // SPLIT - first))
            wait_maxima()
            sync_warp()
            for half in range(0, n, 32):
                carried = _put_factors(factors + 16 * (half + lane), lane, carried, first + half > 0)
            wait_all()
            sync_warp()
            begin = np.int32(0)
            if first == 0:
                value, total, begin = shared_float(start + 4 * lane), shared_float(factors + 8), np.int32(1)
            value, total = _go_through(start + 4 * lane, factors, begin, n, value, total, held)
            sync_warp()
        finish(value, total, sigmoid(shared_float(gates)), row, head, first_dim + lane, out, gated, codes, turned, scales, sums)

    return run
