"""Attention over selected cells: head finishing, K/V writing, splits of 64 cells, merge and output gate.

MODEL.md section 3.2.  The ascending list of a row's cells is cut at every 64th rank.  Each split is a fresh triple
(maximum, sum, value): scores are eight-lane dots times 1/sqrt(D); e = exp(score - maximum); the sum is a chain over the
split's cells, values are fused chains; splits merge in ascending order by

    M = larger maximum;  a = exp(m - M), b = exp(m' - M);  sum = fma(sum', b, sum * a);  value = fma(value', b, value * a)

and the result is value / sum.  Comparisons are written out (never float min/max).
Shapes: queries [rows, heads, D]; codes [slots, cells, kv_heads, D]; cells int32 [rows, width].  Does not know: selection.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.fork import fork
from strata.host.cells import cell_format
from strata.host.dots import dot8
from strata.host.norms import inverse_rms
from strata.host.rope import rotate
from strata.numerics.cpu import add, div, fma, jit, kernel, mul, sub
from strata.numerics.on_cpu import exp, sigmoid

ZERO = np.float32(0.0)
SPLIT = 64
"""Cells per split: part of the contract."""


@kernel
def finish_heads(x, norm, eps, table, positions, stride, out):
    """out[row, head] = rotated(rms(x[row, head*stride : +D]) * norm): x [rows, heads*stride], norm [D], out [rows, heads, D]."""
    size = norm.shape[0]
    for row in range(out.shape[0]):
        for h in range(out.shape[1]):
            source, target = x[row, h * stride : h * stride + size], out[row, h]
            scale = inverse_rms(source, eps)
            for i in range(size):
                target[i] = mul(mul(source[i], scale), norm[i])
            rotate(target, table[positions[row]])


@cache
def store_cells(kv: str):
    """Return kernel(x [rows, heads, D], slots, positions, codes, scales): writes each row's cell."""
    store = cell_format(kv).store

    @kernel
    def run(x, slots, positions, codes, scales):
        for row in range(x.shape[0]):
            for h in range(x.shape[1]):
                store(x[row, h], codes[slots[row], positions[row], h], scales[slots[row], positions[row], h])

    return run


@jit
def _weigh(scores, n):
    """Turn scores[:n] into exp(score - maximum) in place; return the maximum."""
    top = scores[0]
    for s in range(1, n):
        top = scores[s] if scores[s] > top else top
    for s in range(n):
        scores[s] = exp(sub(scores[s], top))
    return top


@jit
def _merge(fresh, h, top, total, values, tops, totals, out):
    """Merge one split's triple (top, total, values) of head h into the running one (tops[h], totals[h], out)."""
    if fresh:
        tops[h], totals[h] = top, total
        for i in range(out.shape[0]):
            out[i] = values[i]
        return
    highest = top if top > tops[h] else tops[h]
    old, new = exp(sub(tops[h], highest)), exp(sub(top, highest))
    tops[h] = highest
    totals[h] = fma(total, new, mul(totals[h], old))
    for i in range(out.shape[0]):
        out[i] = fma(values[i], new, mul(out[i], old))


@cache
def attend(kv: str):
    """Return kernel(control, queries, k_codes, k_scales, v_codes, v_scales, slots, cells, counts, scale, out [rows, heads, D])."""
    load = cell_format(kv).load

    @jit
    def split_triple(queries, row, slot, j, k_codes, k_scales, v_codes, v_scales, cells, at, n, scale, scores, vector, values):
        """Scores and values of cells[at:at+n] for the heads of K/V head j; scores become weights, returns nothing else."""
        group, size = values.shape
        first_head = j * group
        for s in range(n):
            cell = cells[row, at + s]
            load(k_codes[slot, cell, j], k_scales[slot, cell, j], vector)
            for h in range(group):
                scores[h, s] = mul(dot8(queries[row, first_head + h], vector, size), scale)
        for h in range(group):
            scores[h, n] = _weigh(scores[h], n)
            for i in range(size):
                values[h, i] = ZERO
        for s in range(n):
            cell = cells[row, at + s]
            load(v_codes[slot, cell, j], v_scales[slot, cell, j], vector)
            for h in range(group):
                e = scores[h, s]
                for i in range(size):
                    values[h, i] = fma(e, vector[i], values[h, i])

    @jit
    def body(begin, end, arguments):
        queries, k_codes, k_scales, v_codes, v_scales, slots, cells, counts, scale, out = arguments
        size, n_kv = queries.shape[2], k_codes.shape[2]
        group = queries.shape[1] // n_kv
        vector, scores = np.empty(size, np.float32), np.empty((group, SPLIT + 1), np.float32)
        tops, totals, values = np.empty(group, np.float32), np.empty(group, np.float32), np.empty((group, size), np.float32)
        for item in range(begin, end):
            row, j = item // n_kv, item % n_kv
            for at in range(0, counts[row], SPLIT):
                n = counts[row] - at if counts[row] - at < SPLIT else SPLIT
                split_triple(queries, row, slots[row], j, k_codes, k_scales, v_codes, v_scales, cells, at, n, scale, scores, vector, values)
                for h in range(group):
                    total = ZERO
                    for s in range(n):
                        total = add(total, scores[h, s])
                    _merge(at == 0, h, scores[h, n], total, values[h], tops, totals, out[row, j * group + h])
            for h in range(group):
                for i in range(size):
                    out[row, j * group + h, i] = div(out[row, j * group + h, i], totals[h])

    @kernel
    def run(control, queries, k_codes, k_scales, v_codes, v_scales, slots, cells, counts, scale, out):
        n_items = queries.shape[0] * k_codes.shape[2]
        fork(control, body, n_items, 2, (queries, k_codes, k_scales, v_codes, v_scales, slots, cells, counts, scale, out))

    return run


@kernel
def gate(attended, projected, out):
    """out[row, h*D + i] = attended[row, h, i] * sigmoid(gate): projected [rows, heads*2D] holds query, gate per head."""
    n_heads, size = attended.shape[1], attended.shape[2]
    for row in range(attended.shape[0]):
        for h in range(n_heads):
            for i in range(size):
                out[row, h * size + i] = mul(attended[row, h, i], sigmoid(projected[row, (2 * h + 1) * size + i]))
