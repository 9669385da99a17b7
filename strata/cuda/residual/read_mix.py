"""The second half of a stream read in one kernel: low-rank gate, `up` product, mix, codes.

A block makes one group of 32 values of the mix for up to 16 rows.  It needs the C rows d, H + d, 2 H + d ... of `up` [C * H, rank]
(float weights) for each value d, so products, sigmoids and the sum over streams meet in one place and neither `up . low`
nor the gated low-rank row is ever stored.  Weights are on their way to shared memory before the previous kernel has ended (where
they fit there).  Orders as on the host: a product has 256 lanes (element i in lane i mod 256; thread t of a warp holds lanes t + 32 m).
The halving tree's first three levels lie within a thread, the other five run over the threads for up to 32 sums at once, of several
values, streams and rows: at each level a thread hands half of its sums over and goes on with the other half.  It ends with one
(value, stream, row), takes its sigmoid, and the streams meet by exchanges.  The additions and their order are the same whatever the
number of rows.

Shapes, flat: low [rows, rank] as `down` gave it; up the raw bytes (uint8) of float weights [C * H, rank]; normed [rows, C * H]; mixed [rows, H].
Does not know: the norm, `down`, inject.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.floats.float_short_rows import WIDEN
from strata.cuda.machine.addresses import shared_address, shared_float
from strata.cuda.machine.on_cuda import sigmoid, silu, tree8
from strata.cuda.machine.seam import Target, fma, jit, kernel, launch_dependents, mul, shuffle_float, wait_for_dependency
from strata.cuda.machine.shapes import require, shared_room
from strata.cuda.machine.warps import meeting
from strata.cuda.packed.group_codes import arrays_of, group_coder
from strata.cuda.packed.products import Coded
from strata.cuda.residual.read_mix_weights import GROUP, ROWS, VALUES_PER_WARP, WARPS, ReadShape, plain_weights, staged_weights
from strata.model.config import ModelConfig
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
THREADS = 32 * WARPS
ROWS_AT_ONCE = (1, 2, 4, 8)
"""Rows that meet a weight once it is unpacked."""
LANES = WIDE // 32
"""Lanes of the 256-lane order per thread."""
LARGEST_RANK = 512


def _row_sums(shape: ReadShape):
    """Build `add_row(gated_at, r, thread, weights, x, partial, v, sums)`: what a thread has of row r's products with value v's rows."""
    n_streams, rank, n_rows, n_elements = shape.n_streams, shape.rank, shape.rows, shape.n_elements

    @jit
    def add_row(gated_at, r, thread, weights, x, partial, v, sums):
        """Chains from +0 in ascending element order, and the tree's levels of 128, 64 and 32."""
        at = gated_at + 4 * (r * rank + thread)
        for k in range(n_elements):
            if 32 * k + 31 < rank or 32 * k + thread < rank:
                x[k] = shared_float(at + 128 * k)
        for c in range(n_streams):
            for j in range(LANES):
                partial[j] = ZERO
            for k in range(n_elements):
                if 32 * k + 31 < rank or 32 * k + thread < rank:
                    partial[k % LANES] = fma(weights[c * n_elements + k], x[k], partial[k % LANES])
            sums[(v * n_streams + c) * n_rows + r] = tree8(
                partial[0], partial[1], partial[2], partial[3], partial[4], partial[5], partial[6], partial[7]
            )

    return add_row


def _gating(shape: ReadShape):
    """Build `gate(low, first_row, n_left, floats)`: the gated rows to shared memory, all loads before the first use."""
    rank, share, at = shape.rank, shape.share, shape.gated_at // 4
    n_values = shape.rows * rank
    n_own = (n_values + THREADS - 1) // THREADS

    @jit
    def gate(low, first_row, n_left, floats):
        values = cuda.local.array(n_own, np.float32)
        thread, n_here = np.int32(cuda.threadIdx.x), n_left * rank
        for m in range(n_own):
            i = thread + m * THREADS
            values[m] = low[np.int64(first_row) * rank + i] if i < n_here else ZERO
        for m in range(n_own):
            i = thread + m * THREADS
            if i < n_values:
                floats[at + i] = silu(mul(values[m], share))

    return gate


@cache
def read_mix_kernel(shape: ReadShape, target: Target):
    """Return kernel(low, up, normed, n_rows, mixed, codes, turned, scales, sums); grid (H / 32, rows / ROWS), THREADS threads."""
    hidden, n_streams, rows, values, per_sum = shape.hidden, shape.n_streams, shape.rows, shape.values, shape.per_sum
    n_passes, n_sums, n_elements = VALUES_PER_WARP // values, shape.n_sums, shape.n_elements
    n_weights, last_pass = n_streams * n_elements, VALUES_PER_WARP - values
    gated_from, mixes_from = shape.gated_at, shape.mixes_at // 4
    weights_of = staged_weights(shape, target) if shape.staged else plain_weights(shape)
    fetch, wait_weights, widened = weights_of.fetch, weights_of.wait, weights_of.widened
    add_row, meet, gate_rows = _row_sums(shape), meeting(n_sums), _gating(shape)
    share, code_group = shape.share, group_coder(target)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @jit
    def mix_of(logit, x, v, r):
        """The sum over streams of what the threads of value v, row r hold; all of them get it."""
        gate = sigmoid(logit)
        first = np.int32((v * n_streams * rows + r) * per_sum)
        total = mul(shuffle_float(x, first), shuffle_float(gate, first))
        for c in range(1, n_streams):
            source = np.int32(first + c * rows * per_sum)
            total = fma(shuffle_float(x, source), shuffle_float(gate, source), total)
        return mul(total, share)

    @kernel(THREADS)
    def run(low, up, normed, n_rows, mixed, codes, turned, scales, sums):
        shared, floats = shared_address(cuda.shared.array(0, types.uint8)), cuda.shared.array(0, types.float32)
        weights, x = cuda.local.array(n_weights, np.float32), cuda.local.array(n_elements, np.float32)
        partial, totals = cuda.local.array(LANES, np.float32), cuda.local.array(n_sums, np.float32)
        thread, warp = np.int32(cuda.threadIdx.x) & 31, np.int32(cuda.threadIdx.x) >> 5
        group, first_row = np.int32(cuda.blockIdx.x), np.int32(cuda.blockIdx.y) * ROWS
        n_here = min(np.int32(ROWS), np.int32(n_rows - first_row))
        own = np.int32(warp * VALUES_PER_WARP)
        d = np.int32(group * GROUP + own)
        r, c = (thread // per_sum) % rows, (thread // (per_sum * rows)) % n_streams
        v = thread // (per_sum * rows * n_streams)
        fetch(up, d, own, thread)
        wait_before()
        for begin in range(0, n_here, rows):
            n_left = min(np.int32(rows), np.int32(n_here - begin))
            row = np.int64(first_row + begin + min(np.int32(r), np.int32(n_left - 1)))
            normed_at = (row * n_streams + c) * hidden + d + v
            first_normed, last_normed = normed[normed_at], normed[normed_at + last_pass]
            if begin > 0:
                cuda.syncthreads()
            gate_rows(low, np.int32(first_row + begin), n_left, floats)
            # Before its own inputs are on their way the next kernel's weights would stand in line with them.
            go_on()
            wait_weights()
            cuda.syncthreads()
            for p in range(n_passes):
                for beside in range(values):
                    which = np.int32(p * values + beside)
                    for s in range(n_streams):
                        widened(up, np.int32(d + which), np.int32(own + which), s, thread, weights)
                    for each in range(rows):
                        add_row(shared + gated_from, each, thread, weights, x, partial, beside, totals)
                value = mix_of(meet(totals, thread), first_normed if p == 0 else last_normed, v, r)
                if c == 0 and thread % per_sum == 0 and r < n_left:
                    floats[mixes_from + (begin + r) * GROUP + own + p * values + v] = value
        cuda.syncthreads()
        if warp < n_here:
            value = floats[mixes_from + warp * GROUP + thread]
            at = np.int64(first_row + warp) * hidden + group * GROUP + thread
            mixed[at] = value
            code_group(value, thread, at >> 5, codes, turned, scales, sums)

    return run


def shape_of(config: ModelConfig, rank: int, type_name: str, n_rows: int, room: int) -> ReadShape:
    """Return the variant for a number of rows; `room`: the shared memory that a block can have."""
    rows = next((n for n in ROWS_AT_ONCE if n >= n_rows), ROWS_AT_ONCE[-1])
    shape = ReadShape(config.hidden, config.n_streams, rank, type_name, rows, True)
    return shape if shape.shared_bytes <= room else ReadShape(config.hidden, config.n_streams, rank, type_name, rows, False)


def fits(config: ModelConfig, rank: int, type_name: str) -> bool:
    """Whether the fused read takes this geometry; `streams` has the kernels for all others."""
    return (
        type_name in WIDEN and config.hidden % GROUP == 0 and config.n_streams in (1, 2, 4) and rank % 2 == 0 and rank <= LARGEST_RANK
    )


def launch_read_mix(
    device: CudaDevice, config: ModelConfig, type_name: str, low, up, rank: int, normed, n_rows: int, mixed, coded: Coded,
    programmatic: bool = False,
) -> Launch:
    """mixed [rows, H] and its codes from low = down . normed, the weights of `up` and normed."""
    require(fits(config, rank, type_name), f"up {type_name} rank={rank}", "the fused read does not take it", "use launch_mix")
    variant = shape_of(config, rank, type_name, n_rows, shared_room(device.card.capability))
    shape = Shape((config.hidden // GROUP, (n_rows + ROWS - 1) // ROWS), THREADS, variant.shared_bytes)
    return Launch(device, read_mix_kernel(variant, device.target), shape, (low, up, normed, np.int32(n_rows), mixed, *arrays_of(coded)), programmatic)
