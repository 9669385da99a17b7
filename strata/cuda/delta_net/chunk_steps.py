"""One token's way through the memories that a thread of a chunk's scan holds: the chains of chunk_scan.py.

A thread has one column of each of `n_held` v heads that share a k head, in lane `lane` of eight: rows lane, lane + 8, ... of
head j at state[j * rows:].  k, q and the k of the next token lie in registers and serve all its heads; `gates` holds v, decay and
strength of each, `r` the sums k.M.  Addresses are of shared memory: a token is k, q (by lanes, `pitch` floats apart), then, head by
head, v of the block's columns, decay and strength.

    load(at, values)                             a lane's part of k or q
    load_gates(at, group, gates)                 those of the token at `at`
    first(k, state, r)                           r of the first token
    step(after, then, lane_at, group, k, k_next, q, state, gates, r, sums, t)
                                                 the token whose k, q, gates and r are there: the lane's part of its outputs goes to
                                                 sums[2 j + t]; q, gates and r become those of the token `after`, k that of `then`
    outputs(sums, lane)                          sums[j] = the sum over eight lanes of sums[2 j] for lanes 0 .. 3, of sums[2 j + 1] for 4 .. 7

Does not know: where tokens come from.
"""

from types import SimpleNamespace

import numpy as np

from strata.cuda.delta_net.scan_parts import ZERO, any_small_of, flushed
from strata.cuda.machine.addresses import shared_float, shared_four_floats, shared_two_floats
from strata.cuda.machine.seam import add, exchange_float, fma, jit, mul, sub

COLUMNS = 16
"""Memory columns of a block."""
N_EXTRAS = COLUMNS + 2
"""Values of a token and head beside k and q: v of the block's columns, the decay, the strength."""
BATCH = 8
"""Tokens that travel together."""


def token_steps(size: int, pitch: int, n_held: int) -> SimpleNamespace:
    """Build the helpers."""
    rows, vector_bytes = size // 8, 4 * 8 * pitch

    @jit
    def load(at, values):
        for i in range(0, rows, 4):
            values[i], values[i + 1], values[i + 2], values[i + 3] = shared_four_floats(at + 4 * i)

    @jit
    def load_gates(at, group, gates):
        for j in range(n_held):
            extras = at + (2 * vector_bytes + 4 * N_EXTRAS * j)
            gates[3 * j] = shared_float(extras + 4 * group)
            gates[3 * j + 1], gates[3 * j + 2] = shared_two_floats(extras + 4 * COLUMNS)

    @jit
    def meet(r):
        """Sums over the eight lanes, side by side: none waits for another."""
        for level in range(3):
            for j in range(n_held):
                r[j] = add(r[j], exchange_float(r[j], np.int32(4 >> level)))

    @jit
    def first(k, state, r):
        for j in range(n_held):
            r[j] = ZERO
            for i in range(rows):
                r[j] = fma(k[i], state[rows * j + i], r[j])
        meet(r)

    @jit
    def step(after, then, lane_at, group, k, k_next, q, state, gates, r, sums, t):
        for j in range(n_held):
            decay = gates[3 * j + 1]
            delta = mul(gates[3 * j + 2], fma(sub(ZERO, decay), r[j], gates[3 * j]))
            for i in range(rows):
                state[rows * j + i] = fma(k[i], delta, mul(decay, state[rows * j + i]))
        small = any_small_of(state, 0)
        for at in range(8, n_held * rows, 8):
            small |= any_small_of(state, at)
        if small:
            for i in range(n_held * rows):
                state[i] = flushed(state[i])
        load(then + lane_at, k)
        for j in range(n_held):
            o, r[j] = ZERO, ZERO
            for i in range(rows):
                r[j] = fma(k_next[i], state[rows * j + i], r[j])
                o = fma(q[i], state[rows * j + i], o)
            sums[2 * j + t] = o
        load(after + (vector_bytes + lane_at), q)
        load_gates(after, group, gates)
        meet(r)

    @jit
    def outputs(sums, lane):
        """The tree of `sum_eight` for two tokens at once: at its first level a thread hands one of them over."""
        upper = (lane & 4) != 0
        for j in range(n_held):
            even, odd = sums[2 * j], sums[2 * j + 1]
            sums[j] = add(odd if upper else even, exchange_float(even if upper else odd, np.int32(4)))
        for level in range(1, 3):
            for j in range(n_held):
                sums[j] = add(sums[j], exchange_float(sums[j], np.int32(4 >> level)))

    return SimpleNamespace(outputs=outputs, load=load, load_gates=load_gates, first=first, step=step)
