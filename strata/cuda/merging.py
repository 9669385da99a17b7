"""The ordered merge of attention's splits, the output gate, and the codes of the result.

A warp has 32 neighbouring dimensions of one head of one row and works by itself: no warp waits for another.  Values, maxima and sums
of up to 64 splits are asked for at once, those of splits that the row lacks too: no load waits for the row's count.  Running
maxima are a prefix over the warp (the earlier of equal ones stays, as in a chain), so that each thread makes the factors of two splits;
then all threads go through the splits in ascending order: the formula and order of host/attention.py.  Loops stay loops: the code
is run once, and fetching instructions costs more than computing.  Shapes as in attention.py.  Does not know: cells.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.attention_parts import SPLIT, ZERO, AttentionShape, gated_output, larger
from strata.cuda.on_cuda import exp
from strata.cuda.seam import (
    Target, copies, fma, jit, kernel, launch_dependents, load_four_floats, mul, shuffle_float, sub, sync_warp, wait_for_dependency,
)
from strata.cuda.stores import store_four_floats

TURN = 64
"""Splits that are on their way at once, two by each thread of a warp."""
STEP = 8
"""Splits whose values and factors are read from shared memory before the first is used."""
WARPS = 2
HELD = 4 * STEP
WARP_VALUES = 32 * (TURN + STEP)
WARP_FACTORS = 4 * (TURN + STEP)
"""Floats of a warp's shared memory: values of its dimensions; (old factor, new factor, sum, nothing) of each split.  Reads end STEP behind."""


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
def _put(factors, place, before, top, after, total):
    """The factors of one split, whose maximum is `top`, between the running maxima before and after it."""
    store_four_floats(factors, 16 * np.int64(place), exp(sub(before, after)), exp(sub(top, after)), total, ZERO)


@jit
def _make_factors(factors, place, n, first, carried, top, total, second_top, second_total, lane):
    """Factors of a turn's n splits at `place`; `carried` is the maximum before them where there are any; return it with them."""
    after = _running_maximum(top, lane)
    after = larger(carried, after) if first > 0 else after
    before = shuffle_float(after, np.int32(max(lane - 1, np.int32(0))))
    before = carried if lane == 0 and first > 0 else before
    _put(factors, place + lane, before, top, after, total)
    highest = shuffle_float(after, np.int32(31))
    if n > 32:
        after = larger(highest, _running_maximum(second_top, lane))
        before = shuffle_float(after, np.int32(max(lane - 1, np.int32(0))))
        _put(factors, place + 32 + lane, highest if lane == 0 else before, second_top, after, second_total)
        highest = shuffle_float(after, np.int32(31))
    return highest


@jit
def _go_through(values, factors, begin, n, own, place, value, total, held):
    """Merge a turn's splits begin .. n - 1, ascending; return the value and the sum."""
    for at in range(begin, n, STEP):
        for k in range(STEP):
            v = 4 * k
            held[v], held[v + 1], held[v + 2], _ = load_four_floats(factors, 16 * np.int64(place + at + k))
            held[v + 3] = values[own + 32 * (at + k)]
        for k in range(STEP):
            if at + k < n:
                v = 4 * k
                total = fma(held[v + 2], held[v + 1], mul(total, held[v]))
                value = fma(held[v + 3], held[v + 1], mul(value, held[v]))
    return value, total


def _fetch(shape: AttentionShape, target: Target):
    """Build `fetch(values, triples, source, n, at, lane)`: 32 dimensions of n splits' values, from float `source` on, to float `at`."""
    size, move = shape.size, copies(target, 0)
    copy16, commit = move.copy16, move.commit

    @jit
    def fetch(values, triples, source, n, at, lane):
        for i in range(lane, 8 * n, 32):
            split, piece = i >> 3, i & 7
            copy16(values, np.int64(4 * (at + 32 * split + 4 * piece)), triples, 4 * (source + split * size + 4 * piece))
        commit()

    return fetch, move.wait


@cache
def merge_kernel(shape: AttentionShape, target: Target):
    """Return the kernel; grid (grid_of(shape), rows), 32 WARPS threads.

    kernel(tops, totals, triples, positions, counts, n_splits, projected, out, gated, codes, turned, scales, sums).
    """
    n_q, size, dense, n_parts = shape.n_q, shape.size, shape.dense, shape.size // 32
    n_units, (gate_of, finish) = n_q * n_parts, gated_output(shape, target)
    (fetch, wait), n_values, n_factors = _fetch(shape, target), WARPS * WARP_VALUES, WARPS * WARP_FACTORS
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(32 * WARPS)
    def run(tops, totals, triples, positions, counts, n_splits, projected, out, gated, codes, turned, scales, sums):
        values = cuda.shared.array(n_values, types.float32)
        factors = cuda.shared.array(n_factors, types.float32)
        held = cuda.local.array(HELD, np.float32)
        go_on()
        row, lane, warp = np.int32(cuda.blockIdx.y), np.int32(cuda.threadIdx.x) & 31, np.int32(cuda.threadIdx.x) >> 5
        unit = np.int32(np.int32(cuda.blockIdx.x) * WARPS + warp)
        wait_before()
        if unit >= n_units:
            return
        head, dim = unit // n_parts, 32 * (unit % n_parts) + lane
        base, place = np.int32(warp * WARP_VALUES), np.int32(warp * (TURN + STEP))
        at = (np.int64(row) * n_q + head) * n_splits
        count = np.int32(positions[row] + 1) if dense else counts[row]
        n_here = np.int32((count + SPLIT - 1) // SPLIT)
        value = total = carried = ZERO
        gate = gate_of(projected, row, head, dim)
        for first in range(0, n_splits, TURN):
            n_loaded = min(np.int32(TURN), np.int32(n_splits - first))
            fetch(values, triples, (at + first) * size + dim - lane, n_loaded, base, lane)
            own, second = at + first + min(lane, np.int32(n_loaded - 1)), at + first + min(np.int32(lane + 32), np.int32(n_loaded - 1))
            n = min(np.int32(TURN), np.int32(n_here - first))
            if n > 0:
                carried = _make_factors(factors, place, n, first, carried, tops[own], totals[own], tops[second], totals[second], lane)
            wait()
            sync_warp()
            begin = np.int32(0)
            if first == 0:
                value, total, begin = values[base + lane], factors[4 * place + 2], np.int32(1)
            value, total = _go_through(values, factors, begin, n, base + lane, place, value, total, held)
            sync_warp()
        finish(value, total, gate, row, head, dim, out, gated, codes, turned, scales, sums)

    return run
