"""Matrix products with quantised weights: the order of the contract, over packed rows, as plain loops.

`coded_product` is the specification of `strata.cpu_pool.row_kernels`, which compute the same bits in vectors, and stands in
for them where a process has no vector instructions for it.

One kernel per weight format serves dense matrices and experts alike: a dense matrix is one expert with all rows.
Entry e of expert x is the product of that expert's matrix with activation row `entry_rows[e]`; the entries of the i-th
listed expert are starts[i] .. starts[i+1]-1.  Work is split over (expert, output row), never within a sum.

For a group g (32 weights) of an output row: lane = g mod 8,
    lane = fma(d * dx, float(s0 * dot[0:16] + s1 * dot[16:32]), lane)
    lane = fma(offset * dx, float(sum of codes), lane)              formats with an offset only
then the eight-lane tree.  In mode `wide` each value is dequantised and lane = fma(value_i, x_i, lane), i ascending.
Does not know: routers, layers, rounding modes (spans of codes are the caller's).
"""

from functools import cache

import numpy as np

from strata.cpu_pool.fork import fork
from strata.formats.table import FORMATS
from strata.formats.unpack import row_unpacker
from strata.host.vectors import dot16, dot32
from strata.numerics.cpu import add, fma, jit, kernel, mul
from strata.numerics.on_cpu import tree8

ZERO = np.float32(0.0)
LANE_MASK = 7
GRAIN_WEIGHTS = 8192
"""Weights per piece of work: a few microseconds."""


def _coded_row(split_scales: bool, has_offset: bool):
    """Build the product of one unpacked weight row with one coded activation row; constants fold at compile time."""

    @jit
    def product(q, d, s, offset, n_groups, codes, scales, sums, row, lanes):
        for lane in range(8):
            lanes[lane] = ZERO
        for g in range(n_groups):
            at = (row * n_groups + g) * 32
            if split_scales:
                exact = s[2 * g] * dot16(q, g * 32, codes, at) + s[2 * g + 1] * dot16(q, g * 32 + 16, codes, at + 16)
            else:
                exact = s[2 * g] * dot32(q, g * 32, codes, at)
            lane = g & LANE_MASK
            total = fma(mul(d[g], scales[row, g]), np.float32(np.int32(exact)), lanes[lane])
            if has_offset:
                total = fma(mul(offset[g], scales[row, g]), np.float32(sums[row, g]), total)
            lanes[lane] = total
        return tree8(lanes[0], lanes[1], lanes[2], lanes[3], lanes[4], lanes[5], lanes[6], lanes[7])

    return product


@cache
def coded_product(type_id: int):
    """Return the kernel for int8 activations against a format.

    kernel(control, raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, codes, scales, sums, out):
    raw uint8 [...]; experts int32 [n]; starts int32 [n+1]; entry_rows int32 [entries]; codes int8 [rows, 32 n_groups];
    scales float32, sums int32 [rows, n_groups]; out float32 [entries, n_out].
    """
    form = FORMATS[type_id]
    unpack_row = row_unpacker(form)
    product = _coded_row(form.split_scales, form.has_offset)

    @jit
    def body(begin, end, arguments):
        raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, codes, scales, sums, out = arguments
        n_out = out.shape[1]
        q, s = np.empty(n_groups * 8, np.int32), np.empty(n_groups * 2, np.int32)
        d, offset, lanes = np.empty(n_groups, np.float32), np.empty(n_groups, np.float32), np.empty(8, np.float32)
        for item in range(begin, end):
            i, n = item // n_out, item % n_out
            unpack_row(raw, experts[i] * expert_bytes + n * row_bytes, n_groups, q, d, s, offset)
            for entry in range(starts[i], starts[i + 1]):
                out[entry, n] = product(q, d, s, offset, n_groups, codes, scales, sums, entry_rows[entry], lanes)

    @kernel
    def run(control, raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, codes, scales, sums, out):
        n_items = experts.size * out.shape[1]
        grain = 1 + GRAIN_WEIGHTS // (n_groups * 32)
        arguments = (raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, codes, scales, sums, out)
        fork(control, body, n_items, grain, arguments)

    return run


@cache
def wide_product(type_id: int):
    """Return the kernel for float32 activations; as `coded_product` with values float32 [rows, n_in] for the codes."""
    form = FORMATS[type_id]
    unpack_row = row_unpacker(form)
    has_offset = form.has_offset

    @jit
    def dequantise_row(q, d, s, offset, n_groups, values):
        signed = q.view(np.int8)
        for i in range(n_groups * 32):
            g = i >> 5
            value = mul(d[g], np.float32(s[2 * g + ((i >> 4) & 1)] * np.int32(signed[i])))
            values[i] = add(value, offset[g]) if has_offset else value

    @jit
    def body(begin, end, arguments):
        raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, x, out = arguments
        n_out = out.shape[1]
        q, s = np.empty(n_groups * 8, np.int32), np.empty(n_groups * 2, np.int32)
        d, offset, lanes = np.empty(n_groups, np.float32), np.empty(n_groups, np.float32), np.empty(8, np.float32)
        values = np.empty(n_groups * 32, np.float32)
        for item in range(begin, end):
            i, n = item // n_out, item % n_out
            unpack_row(raw, experts[i] * expert_bytes + n * row_bytes, n_groups, q, d, s, offset)
            dequantise_row(q, d, s, offset, n_groups, values)
            for entry in range(starts[i], starts[i + 1]):
                row = entry_rows[entry]
                for lane in range(8):
                    lanes[lane] = ZERO
                for j in range(n_groups * 32):
                    lane = (j >> 5) & LANE_MASK
                    lanes[lane] = fma(values[j], x[row, j], lanes[lane])
                out[entry, n] = tree8(lanes[0], lanes[1], lanes[2], lanes[3], lanes[4], lanes[5], lanes[6], lanes[7])

    @kernel
    def run(control, raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, x, out):
        n_items = experts.size * out.shape[1]
        grain = 1 + GRAIN_WEIGHTS // (n_groups * 32)
        fork(control, body, n_items, grain, (raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, x, out))

    return run
