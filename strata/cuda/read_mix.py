"""The second half of a stream read in one kernel: low-rank gate, `up` product, mix, codes.

A block makes one group of 32 values of the mix for up to 16 rows.  It needs the C rows d, H + d, 2 H + d ... of `up` [C * H, rank]
(float weights) for each value d, so products, sigmoids and the sum over streams meet in one place and neither `up . low`
nor the gated low-rank row is ever stored.  Weights are on their way before the previous kernel has
ended.  Orders as on the host: a product has 256 lanes (element i in lane i mod 256; thread t of a warp holds lanes 2 t, 2 t + 1,
2 t + 64, ...).  The halving tree's first two levels lie within a thread, the next five run over the threads, for a row's C sums at
once, and the last joins even and odd lanes, which different threads went on with.  After 32 / C rows each thread has one
(stream, row), takes its sigmoid, and the streams meet by exchanges.  The additions and their order are the same whatever the
number of rows.

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
    Target, add, brain, div, exchange_float, fma, from_bits, half, jit, kernel, launch_dependents, load_two_floats, load_word,
    mul, shuffle_float, wait_for_dependency,
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
MOST_HELD = 40
"""Words of weights that a thread holds while it waits: those of all its values, or of the first alone."""
LOW_HALF = np.uint32(0xFFFF)


@jit
def _two_brains(words, at):
    word = words[at]
    return brain(word & LOW_HALF), brain(word >> 16)


@jit
def _two_halves(words, at):
    word = words[at]
    return half(word & LOW_HALF), half(word >> 16)


@jit
def _two_floats(words, at):
    return from_bits(np.int32(words[at])), from_bits(np.int32(words[at + 1]))


TWO_OF = {"BF16": (_two_brains, 1), "F16": (_two_halves, 1), "F32": (_two_floats, 2)}
"""By type name: two neighbouring values of words, and words per two values."""


@jit
def _halve(a, b, upper, step):
    """One level for two sums: this thread goes on with b where `upper`, else with a, and hands the other over."""
    return add(b if upper else a, exchange_float(a if upper else b, step))


@jit
def _whole(a, step):
    """One level for one sum: both threads go on with it."""
    return add(a, exchange_float(a, step))


def _stream_sums(n_streams, product):
    """Build `sums(weights, x, thread, partial)`: the up products of one row for all streams, at once.

    Where two sums are left a thread hands one half over and goes on with the other, so that a level costs half as many
    exchanges as the level before; thread t ends with the sum of stream (t mod 16) // (16 / n_streams).
    """
    s16, s8, s4, s2, s1 = (np.int32(step) for step in (16, 8, 4, 2, 1))

    @jit
    def lanes_of(weights, c, x, thread, partial):
        """Even lanes in the lower half of the warp, odd ones in the upper."""
        even, odd = product(weights, c, x, thread, partial)
        return _halve(even, odd, (thread & 16) != 0, s16)

    @jit
    def of_one(weights, x, thread, partial):
        return _whole(_whole(_whole(_whole(_whole(lanes_of(weights, 0, x, thread, partial), s8), s4), s2), s1), s16)

    @jit
    def of_two(weights, x, thread, partial):
        a, b = lanes_of(weights, 0, x, thread, partial), lanes_of(weights, 1, x, thread, partial)
        return _whole(_whole(_whole(_whole(_halve(a, b, (thread & 8) != 0, s8), s4), s2), s1), s16)

    @jit
    def of_four(weights, x, thread, partial):
        a, b = lanes_of(weights, 0, x, thread, partial), lanes_of(weights, 1, x, thread, partial)
        c, d = lanes_of(weights, 2, x, thread, partial), lanes_of(weights, 3, x, thread, partial)
        upper = (thread & 8) != 0
        total = _halve(_halve(a, c, upper, s8), _halve(b, d, upper, s8), (thread & 4) != 0, s4)
        return _whole(_whole(_whole(total, s2), s1), s16)

    return {1: of_one, 2: of_two, 4: of_four}[n_streams]


def _row_product(rank: int):
    """Build `load(low, at, thread, x)`, a thread's values of a row, and `product(weights, c, x, thread, partial) -> even, odd`."""
    n_pairs = (rank + 63) // 64

    @jit
    def load(low, at, thread, x):
        for k in range(n_pairs):
            if 64 * k + 63 < rank or 2 * thread + 64 * k < rank:
                x[2 * k], x[2 * k + 1] = load_two_floats(low, 4 * np.int64(at + 2 * thread + 64 * k))

    @jit
    def product(weights, c, x, thread, partial):
        """The thread's lanes, chains from +0 in ascending element order, and the tree's levels of 128 and 64."""
        for j in range(LANES):
            partial[j] = ZERO
        for k in range(n_pairs):
            if 64 * k + 63 < rank or 2 * thread + 64 * k < rank:
                w, j = 2 * (c * n_pairs + k), 2 * k % LANES
                partial[j] = fma(weights[w], x[2 * k], partial[j])
                partial[j + 1] = fma(weights[w + 1], x[2 * k + 1], partial[j + 1])
        even = add(add(partial[0], partial[4]), add(partial[2], partial[6]))
        return even, add(add(partial[1], partial[5]), add(partial[3], partial[7]))

    return load, product


def _weight_words(hidden: int, n_streams: int, rank: int, type_name: str):
    """Build `fetch(up, d, thread, words, to)`, a thread's words of the weights of value d, and `unpack(words, at, weights)`."""
    two_of, n_words = TWO_OF[type_name]
    n_pairs = (rank + 63) // 64

    @jit
    def fetch(up, d, thread, words, to):
        for c in range(n_streams):
            at = (np.int64(c * hidden + d) * rank + 2 * thread) * 2 * n_words
            for k in range(n_pairs):
                if 64 * k + 63 < rank or 2 * thread + 64 * k < rank:
                    for e in range(n_words):
                        words[to + (c * n_pairs + k) * n_words + e] = load_word(up, at + (64 * k * n_words + 2 * e) * 2)

    @jit
    def unpack(words, at, weights):
        for i in range(n_streams * n_pairs):
            weights[2 * i], weights[2 * i + 1] = two_of(words, at + i * n_words)

    return fetch, unpack, n_streams * n_pairs * n_words


@cache
def read_mix_kernel(hidden: int, n_streams: int, rank: int, type_name: str, target: Target):
    """Return kernel(low, up, normed, n_rows, mixed, codes, turned, scales, sums); grid (H / 32, rows / ROWS), THREADS threads."""
    load_row, product = _row_product(rank)
    fetch, unpack, n_words = _weight_words(hidden, n_streams, rank, type_name)
    stream_sums = _stream_sums(n_streams, product)
    n_pairs, per_stream = (rank + 63) // 64, 16 // n_streams
    at_once, n_weights, n_x = 2 * per_stream, 2 * n_streams * n_pairs, 2 * n_pairs
    n_held = VALUES_PER_WARP if VALUES_PER_WARP * n_words <= MOST_HELD else 1
    n_all_words = n_held * n_words
    n_low, n_mixed = ROWS * rank, ROWS * GROUP
    count = np.float32(n_streams)
    code_group = group_coder(target)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @jit
    def mix_of(logit, x, r):
        """The sum over streams of what the threads of row r hold; all of them get it."""
        gate = sigmoid(logit)
        first = np.int32(r % per_stream + 16 * (r // per_stream))
        total = mul(shuffle_float(x, first), shuffle_float(gate, first))
        for s in range(1, n_streams):
            source = np.int32(first + s * per_stream)
            total = fma(shuffle_float(x, source), shuffle_float(gate, source), total)
        return div(total, count)

    @kernel(THREADS)
    def run(low, up, normed, n_rows, mixed, codes, turned, scales, sums):
        gated = cuda.shared.array(n_low, np.float32)
        mixes = cuda.shared.array(n_mixed, np.float32)
        words, weights = cuda.local.array(n_all_words, np.uint32), cuda.local.array(n_weights, np.float32)
        partial, x = cuda.local.array(LANES, np.float32), cuda.local.array(n_x, np.float32)
        first_normed = cuda.local.array(VALUES_PER_WARP, np.float32)
        go_on()
        thread, warp = np.int32(cuda.threadIdx.x) & 31, np.int32(cuda.threadIdx.x) >> 5
        group, first_row = np.int32(cuda.blockIdx.x), np.int32(cuda.blockIdx.y) * ROWS
        n_here = min(np.int32(ROWS), np.int32(n_rows - first_row))
        c, r = (thread & 15) // per_stream, thread % per_stream + per_stream * (thread >> 4)
        own = np.int32(warp * VALUES_PER_WARP)
        d = np.int32(group * GROUP + own)
        for v in range(n_held):
            fetch(up, np.int32(d + v), thread, words, v * n_words)
        wait_before()
        for v in range(VALUES_PER_WARP):
            first_normed[v] = normed[(np.int64(first_row + min(r, np.int32(n_here - 1))) * n_streams + c) * hidden + d + v]
        for i in range(np.int32(cuda.threadIdx.x), n_here * rank, THREADS):
            gated[i] = silu(div(low[np.int64(first_row) * rank + i], count))
        cuda.syncthreads()
        for v in range(VALUES_PER_WARP):
            if v >= n_held:
                fetch(up, np.int32(d + v), thread, words, 0)
            unpack(words, v * n_words if v < n_held else 0, weights)
            for begin in range(0, n_here, at_once):
                logit = ZERO
                for ahead in range(min(np.int32(at_once), np.int32(n_here - begin))):
                    load_row(gated, (begin + ahead) * rank, thread, x)
                    total = stream_sums(weights, x, thread, partial)
                    logit = total if r == ahead else logit
                in_tile = np.int32(begin + r)
                own_normed = first_normed[v]
                if begin > 0:
                    own_row = first_row + min(in_tile, np.int32(n_here - 1))
                    own_normed = normed[(np.int64(own_row) * n_streams + c) * hidden + d + v]
                value = mix_of(logit, own_normed, r)
                if c == 0 and in_tile < n_here:
                    mixes[in_tile * GROUP + own + v] = value
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
        type_name in TWO_OF and config.hidden % GROUP == 0 and config.n_streams in (1, 2, 4) and rank % 2 == 0 and rank <= LARGEST_RANK
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
