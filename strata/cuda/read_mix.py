"""The second half of a stream read in one kernel: low-rank gate, `up` product, mix, codes.

A block makes one group of 32 values of the mix for up to 16 rows.  It needs the C rows d, H + d, 2 H + d ... of `up` [C * H, rank]
(float weights) for each value d, so products, sigmoids and the sum over streams meet in one place and neither `up . low`
nor the gated low-rank row is ever stored.  Orders as on the host: a product has 256 lanes (element i in lane i mod 256; thread
t of a warp holds lanes t, t + 32, ...), and the halving tree's last five levels run over the threads, for a row's C sums at
once.  After 32 / C rows each thread has one (stream, row), takes its sigmoid, and the streams meet by exchanges.  The additions
and their order are the same whatever the number of rows.

Shapes, flat: low [rows, rank] as `down` gave it; up the raw bytes (uint8) of float weights [C * H, rank]; normed [rows, C * H]; mixed [rows, H].
Does not know: the norm, `down`, inject.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.device import CudaDevice
from strata.cuda.group_codes import arrays_of, group_coder
from strata.cuda.launch import Launch, Shape
from strata.cuda.on_cuda import sigmoid, silu
from strata.cuda.products import Coded
from strata.cuda.seam import (
    Target, add, brain, div, exchange_float, fma, from_bits, half, jit, kernel, launch_dependents, load_u16, load_word, mul,
    shuffle_float, wait_for_dependency,
)
from strata.cuda.shapes import require
from strata.model.config import ModelConfig
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
WARPS = 16
THREADS = 32 * WARPS
GROUP = 32
VALUES_PER_WARP = GROUP // WARPS
ROWS = 16
"""Rows of a block: one warp codes one of them."""
LANES = WIDE // 32
"""Lanes of the 256-lane order per thread."""
LARGEST_RANK = 512


@jit
def _brain_at(raw, at):
    return brain(load_u16(raw, at))


@jit
def _half_at(raw, at):
    return half(load_u16(raw, at))


@jit
def _float_at(raw, at):
    return from_bits(np.int32(load_word(raw, at)))


VALUE_AT = {"BF16": (_brain_at, 2), "F16": (_half_at, 2), "F32": (_float_at, 4)}
"""By type name: `value(raw, byte)`, and bytes per value."""


@jit
def _halve(a, b, upper, step):
    """One level for two sums: this thread goes on with b where `upper`, else with a, and hands the other over."""
    return add(b if upper else a, exchange_float(a if upper else b, step))


@jit
def _whole(a, step):
    """One level for one sum: both threads go on with it."""
    return add(a, exchange_float(a, step))


def _stream_sums(n_streams, product):
    """Build `sums(weights, low, at, thread, partial)`: the up products of one row for all streams, at once.

    The last five levels of the halving tree run over the threads.  Where two sums are left a thread hands one half over and
    goes on with the other, so that a level costs half as many exchanges as the level before; thread t ends with the sum of
    stream t // (32 / n_streams).
    """
    s16, s8, s4, s2, s1 = (np.int32(step) for step in (16, 8, 4, 2, 1))

    @jit
    def of_one(weights, low, at, thread, partial):
        total = product(weights, 0, low, at, thread, partial)
        return _whole(_whole(_whole(_whole(_whole(total, s16), s8), s4), s2), s1)

    @jit
    def of_two(weights, low, at, thread, partial):
        a, b = product(weights, 0, low, at, thread, partial), product(weights, 1, low, at, thread, partial)
        total = _halve(a, b, (thread & 16) != 0, s16)
        return _whole(_whole(_whole(_whole(total, s8), s4), s2), s1)

    @jit
    def of_four(weights, low, at, thread, partial):
        a, b = product(weights, 0, low, at, thread, partial), product(weights, 1, low, at, thread, partial)
        c, d = product(weights, 2, low, at, thread, partial), product(weights, 3, low, at, thread, partial)
        upper = (thread & 16) != 0
        total = _halve(_halve(a, c, upper, s16), _halve(b, d, upper, s16), (thread & 8) != 0, s8)
        return _whole(_whole(_whole(total, s4), s2), s1)

    return {1: of_one, 2: of_two, 4: of_four}[n_streams]


def _in_thread_tree():
    """Build `tree(partial)`: the levels 128, 64 and 32 of the halving tree lie within a thread."""

    @jit
    def tree(p):
        return add(add(add(p[0], p[4]), add(p[2], p[6])), add(add(p[1], p[5]), add(p[3], p[7])))

    return tree


@cache
def read_mix_kernel(hidden: int, n_streams: int, rank: int, type_name: str, target: Target):
    """Return kernel(low, up, normed, n_rows, mixed, codes, turned, scales, sums); grid (H / 32, rows / ROWS), THREADS threads."""
    (value_at, value_bytes), tree = VALUE_AT[type_name], _in_thread_tree()
    per_thread = (rank + 31) // 32
    n_weights = n_streams * per_thread
    at_once = 32 // n_streams
    n_low, n_mixed = ROWS * rank, ROWS * GROUP
    count = np.float32(n_streams)
    code_group = group_coder(target)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @jit
    def load_weights(up, d, thread, weights):
        for c in range(n_streams):
            at = (np.int64(c * hidden + d) * rank + thread) * value_bytes
            for k in range(per_thread):
                inside = 32 * k + 31 < rank or thread + 32 * k < rank
                weights[c * per_thread + k] = value_at(up, at + 32 * k * value_bytes) if inside else ZERO

    @jit
    def product(weights, c, low, at, thread, partial):
        """The thread's lanes of one product, chains from +0 in ascending element order, and the tree's first levels."""
        for j in range(LANES):
            partial[j] = ZERO
        for k in range(per_thread):
            if 32 * k + 31 < rank or thread + 32 * k < rank:
                x = from_bits(np.int32(load_word(low, 4 * (at + thread + 32 * k))))
                partial[k % LANES] = fma(weights[c * per_thread + k], x, partial[k % LANES])
        return tree(partial)

    stream_sums = _stream_sums(n_streams, product)

    @jit
    def mix_of(logit, normed, row, c, d, r):
        """The sum over streams of what the threads of one row hold; all of them get it."""
        x = normed[(np.int64(row) * n_streams + c) * hidden + d]
        gate = sigmoid(logit)
        total = mul(shuffle_float(x, r), shuffle_float(gate, r))
        for s in range(1, n_streams):
            source = np.int32(s * at_once + r)
            total = fma(shuffle_float(x, source), shuffle_float(gate, source), total)
        return div(total, count)

    @kernel(THREADS)
    def run(low, up, normed, n_rows, mixed, codes, turned, scales, sums):
        gated = cuda.shared.array(n_low, np.float32)
        mixes = cuda.shared.array(n_mixed, np.float32)
        weights = cuda.local.array(n_weights, np.float32)
        partial = cuda.local.array(LANES, np.float32)
        go_on()
        thread, warp = np.int32(cuda.threadIdx.x) & 31, np.int32(cuda.threadIdx.x) >> 5
        group, first_row = np.int32(cuda.blockIdx.x), np.int32(cuda.blockIdx.y) * ROWS
        n_here = min(np.int32(ROWS), np.int32(n_rows - first_row))
        c, r = thread // at_once, thread % at_once
        load_weights(up, group * GROUP + warp * VALUES_PER_WARP, thread, weights)
        wait_before()
        for i in range(np.int32(cuda.threadIdx.x), n_here * rank, THREADS):
            gated[i] = silu(div(low[np.int64(first_row) * rank + i], count))
        cuda.syncthreads()
        for v in range(VALUES_PER_WARP):
            own = warp * VALUES_PER_WARP + v
            d = group * GROUP + own
            if v > 0:
                load_weights(up, d, thread, weights)
            for begin in range(0, n_here, at_once):
                logit = ZERO
                for ahead in range(min(np.int32(at_once), np.int32(n_here - begin))):
                    total = stream_sums(weights, gated, (begin + ahead) * rank, thread, partial)
                    logit = total if r == ahead else logit
                in_tile = np.int32(begin + r)
                value = mix_of(logit, normed, first_row + min(in_tile, np.int32(n_here - 1)), c, d, r)
                if c == 0 and in_tile < n_here:
                    mixes[in_tile * GROUP + own] = value
        cuda.syncthreads()
        if warp < n_here:
            value = mixes[warp * GROUP + thread]
            at = np.int64(first_row + warp) * hidden + group * GROUP + thread
            mixed[at] = value
            code_group(value, thread, at >> 5, codes, turned, scales, sums)

    return run


def fits(config: ModelConfig, rank: int, type_name: str) -> bool:
    """Whether the fused read takes this geometry; `streams` has the kernels for all others."""
    return (
        type_name in VALUE_AT and config.hidden % GROUP == 0 and config.n_streams in (1, 2, 4) and rank <= LARGEST_RANK
    )


def launch_read_mix(
    device: CudaDevice, config: ModelConfig, type_name: str, low, up, rank: int, normed, n_rows: int, mixed, coded: Coded,
    programmatic: bool = False,
) -> Launch:
    """mixed [rows, H] and its codes from low = down . normed, the weights of `up` and normed."""
    require(fits(config, rank, type_name), f"up {type_name} rank={rank}", "the fused read does not take it", "use launch_mix")
    shape = Shape((config.hidden // GROUP, (n_rows + ROWS - 1) // ROWS), THREADS)
    run = read_mix_kernel(config.hidden, config.n_streams, rank, type_name, device.target)
    return Launch(device, run, shape, (low, up, normed, np.int32(n_rows), mixed, *arrays_of(coded)), programmatic)
