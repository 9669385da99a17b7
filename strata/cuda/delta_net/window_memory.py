"""A head's memory in a decode window's scan: where it lies while tokens go through it.

Thread (group, lane) has four columns from 4 * group on and of these the rows lane, lane + 8, ...; it alone reads and writes them, so
nobody waits.  *In registers*: 64 values a thread, asked for before the previous kernel has ended; two heads fit on a
multiprocessor.  *Shared*: copied asynchronously to shared memory, where a token reads them twice; three heads fit, so that
eight conversations of 48 heads are on 132 multiprocessors at once and none waits for another to end.

    begin(memory, at, state, thread)            ask for the columns, whose first value lies at `at`
    arrive()                                    they are there
    multiply(x, at, state, thread, sums)        sums[c] = x M, `at` being the lane's part of x
    advance(x, k_at, q_at, state, thread, decay, d0 .. d3, memory, home, leaves, sums)
                                                M = k delta + g M; sums = q M; written to memory where it leaves

Does not know: k, q, delta.
"""

from types import SimpleNamespace

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.delta_net.scan_parts import COLUMNS, ZERO, column_helpers, flushed, memory_helpers
from strata.cuda.machine.addresses import copier, global_address, shared_address, shared_four_floats
from strata.cuda.machine.seam import Target, copies, fma, jit, load_four_floats, mul
from strata.cuda.machine.stores import store_four_floats
from strata.cuda.machine.warps import sum_eight


def in_registers(size: int, keep: bool) -> SimpleNamespace:
    """Build the helpers; with `keep` the last token's memory is written."""
    times, update = column_helpers(size)
    fetch, store = memory_helpers(size)

    @jit
    def begin(memory, at, state, thread):
        fetch(memory, at, state)

    @jit
    def arrive():
        return

    @jit
    def multiply(x, at, state, thread, sums):
        times(x, at, state, sums)

    @jit
    def advance(x, k_at, q_at, state, thread, decay, d0, d1, d2, d3, memory, home, leaves, sums):
        update(x, k_at, state, decay, d0, d1, d2, d3)
        if keep and leaves:
            store(memory, home, state)
        times(x, q_at, state, sums)

    return SimpleNamespace(begin=begin, arrive=arrive, multiply=multiply, advance=advance, n_state=COLUMNS * (size // 8))


def _one_row(leaves: bool):
    """Build `advance(k, q, m0 .. m3, decay, d0 .. d3, x, memory, at, sums)`: one row, written to memory where it leaves, else to x."""

    @jit
    def advance(k, q, m0, m1, m2, m3, decay, d0, d1, d2, d3, x, memory, at, sums):
        a, b, c, d = fma(k, d0, mul(decay, m0)), fma(k, d1, mul(decay, m1)), fma(k, d2, mul(decay, m2)), fma(k, d3, mul(decay, m3))
        a, b, c, d = flushed(a), flushed(b), flushed(c), flushed(d)
        sums[0], sums[1], sums[2], sums[3] = fma(q, a, sums[0]), fma(q, b, sums[1]), fma(q, c, sums[2]), fma(q, d, sums[3])
        store_four_floats(memory if leaves else x, at, a, b, c, d)

    return advance


def in_shared(size: int, memory_at: int, target: Target) -> SimpleNamespace:
    """Build the helpers for a memory that is kept; memory_at: bytes before it in shared memory."""
    rows_per_lane, n_threads = size // 8, 8 * size // COLUMNS
    copy, move = copier(16, 0, 0, target, once=True), copies(target, 0)
    commit, wait = move.commit, move.wait
    stays, goes = _one_row(False), _one_row(True)

    @jit
    def own(thread):
        return shared_address(cuda.shared.array(0, types.uint8)) + (memory_at + 16 * thread)

    @jit
    def begin(memory, at, state, thread):
        to, source = own(thread), global_address(memory) + 4 * at
        for r in range(rows_per_lane):
            copy(to + 16 * r * n_threads, source + 32 * r * size)
        commit()

    @jit
    def arrive():
        wait()

    @jit
    def multiply(x, at, state, thread, sums):
        source = own(thread)
        for c in range(COLUMNS):
            sums[c] = ZERO
        for r in range(0, rows_per_lane, 4):
            values = load_four_floats(x, 4 * (at + r))
            for i in range(4):
                m0, m1, m2, m3 = shared_four_floats(source + 16 * (r + i) * n_threads)
                sums[0], sums[1] = fma(values[i], m0, sums[0]), fma(values[i], m1, sums[1])
                sums[2], sums[3] = fma(values[i], m2, sums[2]), fma(values[i], m3, sums[3])
        for c in range(COLUMNS):
            sums[c] = sum_eight(sums[c])

    @jit
    def advance(x, k_at, q_at, state, thread, decay, d0, d1, d2, d3, memory, home, leaves, sums):
        source = own(thread)
        for c in range(COLUMNS):
            sums[c] = ZERO
        for r in range(0, rows_per_lane, 4):
            k, q = load_four_floats(x, 4 * (k_at + r)), load_four_floats(x, 4 * (q_at + r))
            for i in range(4):
                m0, m1, m2, m3 = shared_four_floats(source + 16 * (r + i) * n_threads)
                if leaves:
                    goes(k[i], q[i], m0, m1, m2, m3, decay, d0, d1, d2, d3, x, memory, 4 * (home + 8 * (r + i) * size), sums)
                else:
                    at = np.int64(memory_at + 16 * (thread + (r + i) * n_threads))
                    stays(k[i], q[i], m0, m1, m2, m3, decay, d0, d1, d2, d3, x, memory, at, sums)
        for c in range(COLUMNS):
            sums[c] = sum_eight(sums[c])

    return SimpleNamespace(begin=begin, arrive=arrive, multiply=multiply, advance=advance, n_state=1)
