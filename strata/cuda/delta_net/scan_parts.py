"""What the scans of the gated delta net share: where tokens and memories lie, and steps of a thread's columns of a memory.

Eight threads hold COLUMNS columns of a head's memory M [S, S]: thread l of the eight is lane l and has rows l, l + 8, l + 16, ...
Entries below 2^-100 become +0.  Does not know: tokens' order, blocks.
"""

import numpy as np
from numba import cuda

from strata.cuda.machine.seam import fma, jit, load_four_floats, mul
from strata.cuda.machine.small_values import any_small
from strata.cuda.machine.stores import store_four_floats
from strata.cuda.machine.warps import sum_eight

ZERO = np.float32(0.0)
SMALLEST = np.float32(2.0**-100)
COLUMNS = 4
"""Columns of the memory per thread."""
PAD = 4
"""Floats between two lanes' parts of k or q in shared memory: eight 16-byte reads meet no bank twice."""


@jit
def flushed(value):
    """Entries below 2^-100 become +0; NaN stays."""
    return ZERO if abs(value) < SMALLEST else value


@jit
def _advance(state, at, k, decay, d0, d1, d2, d3):
    """One row of the thread's four columns: M = k delta + g M, but for what becomes +0."""
    state[at], state[at + 1] = fma(k, d0, mul(decay, state[at])), fma(k, d1, mul(decay, state[at + 1]))
    state[at + 2], state[at + 3] = fma(k, d2, mul(decay, state[at + 2])), fma(k, d3, mul(decay, state[at + 3]))


@jit
def any_small_of(state, at):
    """Whether one of state[at : at + 8] is to become +0."""
    return any_small(
        state[at], state[at + 1], state[at + 2], state[at + 3], state[at + 4], state[at + 5], state[at + 6], state[at + 7]
    )


@jit
def output_of_lane(products, lane, read_scale):
    """The output of column `lane` of the thread's four: all eight threads of a column group have the sums of all four."""
    mine = products[1] if lane == 1 else products[0]
    mine = products[2] if lane == 2 else mine
    return mul(products[3] if lane == 3 else mine, read_scale)


def token_places(size: int, pitch: int, n_k_heads: int, n_v_heads: int):
    """Build `staged_at(i)`, `channels_of(h)` and `memory_at(slot, h, lane, column)`.

    Floats before value i of k or q, whose lanes lie `pitch` apart; before q, k and v of v head h in a row of w; before the first value
    of a thread's columns in a memory.
    """

    @jit
    def staged_at(i):
        return (i & 7) * pitch + (i >> 3)

    @jit
    def channels_of(h):
        q_at = (h % n_k_heads) * size
        return q_at, n_k_heads * size + q_at, (2 * n_k_heads + h) * size

    @jit
    def memory_at(slot, h, lane, column):
        return ((slot * n_v_heads + h) * size + lane) * size + column

    return staged_at, channels_of, memory_at


def column_helpers(size: int):
    """Build the helpers on a thread's columns; `at` is where its lane's part of k or q begins."""
    rows_per_lane = size // 8

    @jit
    def multiply(x, at, state, sums):
        """sums[c] = sum_i x_i M_ic in the eight-lane order."""
        for c in range(COLUMNS):
            sums[c] = ZERO
        for r in range(0, rows_per_lane, 4):
            x0, x1, x2, x3 = load_four_floats(x, 4 * (at + r))
            for c in range(COLUMNS):
                sums[c] = fma(x0, state[4 * r + c], sums[c])
                sums[c] = fma(x1, state[4 * r + 4 + c], sums[c])
                sums[c] = fma(x2, state[4 * r + 8 + c], sums[c])
                sums[c] = fma(x3, state[4 * r + 12 + c], sums[c])
        for c in range(COLUMNS):
            sums[c] = sum_eight(sums[c])

    @jit
    def update(x, at, state, decay, d0, d1, d2, d3):
        """M = k delta + g M; entries are only written once more where one of the thread's is below 2^-100, which is rare."""
        small = False
        for r in range(0, rows_per_lane, 4):
            k0, k1, k2, k3 = load_four_floats(x, 4 * (at + r))
            _advance(state, 4 * r, k0, decay, d0, d1, d2, d3)
            _advance(state, 4 * r + 4, k1, decay, d0, d1, d2, d3)
            _advance(state, 4 * r + 8, k2, decay, d0, d1, d2, d3)
            _advance(state, 4 * r + 12, k3, decay, d0, d1, d2, d3)
            small |= any_small_of(state, 4 * r) | any_small_of(state, 4 * r + 8)
        if small:
            for i in range(COLUMNS * rows_per_lane):
                state[i] = flushed(state[i])

    return multiply, update


def memory_helpers(size: int):
    """Build `fetch` and `store` between a thread's registers and its columns of the memory, `at` being its first value."""
    rows_per_lane = size // 8

    @jit
    def fetch(memory, at, state):
        for r in range(rows_per_lane):
            state[4 * r], state[4 * r + 1], state[4 * r + 2], state[4 * r + 3] = load_four_floats(memory, 4 * (at + 8 * r * size))

    @jit
    def store(memory, at, state):
        for r in range(rows_per_lane):
            a, b, c, d = state[4 * r], state[4 * r + 1], state[4 * r + 2], state[4 * r + 3]
            store_four_floats(memory, 4 * (at + 8 * r * size), a, b, c, d)

    return fetch, store


def tail_mover(shape):
    """Build `move(u, row, tail, slot, n, block)`: this block's channels of tail = the last rows of (tail, then n rows of u)."""
    depth, channels, n_threads = shape.n_taps - 1, shape.channels, shape.n_threads
    stride = shape.n_blocks * n_threads

    @jit
    def move(u, row, tail, slot, n, block):
        for channel in range(block * n_threads + np.int32(cuda.threadIdx.x), channels, stride):
            base = slot * depth * channels + channel
            for t in range(depth):
                source = t + n
                if source < depth:
                    tail[base + t * channels] = tail[base + source * channels]
                else:
                    tail[base + t * channels] = u[(row + source - depth) * channels + channel]

    return move
