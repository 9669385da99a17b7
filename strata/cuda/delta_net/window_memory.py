"""A head's memory in a decode window's scan: where it lies while tokens go through it.

Thread (group, lane) has four columns from 4 * group on and of these the rows lane, lane + 8, ...; it alone reads and writes them, so
nobody waits.  *In registers*: 64 values a thread, asked for before the previous kernel has ended; two heads fit on a
multiprocessor.  *Shared*: copied in bulk to shared memory, where a token reads them twice; three heads fit, so that
eight conversations of 48 heads are on 132 multiprocessors at once and none waits for another to end.  Rows come one instruction each: by
16 bytes a thread, every copy of a warp would be eight lines of global memory.  They come in turns of four rows of a lane, in the order in which the first
token multiplies them, each behind a barrier.

    begin(memory, head, at, state, thread)      ask for the columns of memory number `head`, of which the thread's first value lies at `at`
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
from strata.cuda.machine.addresses import global_address, shared_address, shared_four_floats
from strata.cuda.machine.bulk import arrive, bulk_copy, set_up, wait_for_bytes
from strata.cuda.machine.seam import fma, jit, load_four_floats, mul, shuffle_int
from strata.cuda.machine.stores import store_four_floats
from strata.cuda.machine.warps import sum_eight

BARRIER_BYTES = 32
"""Up to four barriers."""
ROW_PAD = 16
"""Bytes behind a row in shared memory: eight lanes' reads meet no bank twice."""


def in_registers(size: int, keep: bool) -> SimpleNamespace:
    """Build the helpers; with `keep` the last token's memory is written."""
    times, update = column_helpers(size)
    fetch, store = memory_helpers(size)

    @jit
    def begin(memory, head, at, state, thread):
        fetch(memory, at, state)

    @jit
    def multiply(x, at, state, thread, sums):
        times(x, at, state, sums)

    @jit
    def advance(x, k_at, q_at, state, thread, decay, d0, d1, d2, d3, memory, home, leaves, sums):
        update(x, k_at, state, decay, d0, d1, d2, d3)
        if keep and leaves:
            store(memory, home, state)
        times(x, q_at, state, sums)

    return SimpleNamespace(begin=begin, multiply=multiply, advance=advance, n_state=COLUMNS * (size // 8))


def _one_row(leaves: bool):
    """Build `advance(k, q, m0 .. m3, decay, d0 .. d3, x, memory, at, sums)`: one row, written to memory where it leaves, else to x."""

    @jit
    def advance(k, q, m0, m1, m2, m3, decay, d0, d1, d2, d3, x, memory, at, sums):
        a, b, c, d = fma(k, d0, mul(decay, m0)), fma(k, d1, mul(decay, m1)), fma(k, d2, mul(decay, m2)), fma(k, d3, mul(decay, m3))
        a, b, c, d = flushed(a), flushed(b), flushed(c), flushed(d)
        sums[0], sums[1], sums[2], sums[3] = fma(q, a, sums[0]), fma(q, b, sums[1]), fma(q, c, sums[2]), fma(q, d, sums[3])
        store_four_floats(memory if leaves else x, at, a, b, c, d)

    return advance


def shared_bytes(size: int) -> int:
    """Return the shared memory of a head's memory: barriers, then its rows."""
    return BARRIER_BYTES + size * (4 * size + ROW_PAD)


def in_shared(size: int, memory_at: int) -> SimpleNamespace:
    """Build the helpers for a memory that is kept, for targets with bulk copies; memory_at: bytes of shared memory before its barriers."""
    rows_per_lane, n_warps, row_bytes, rows_at = size // 8, size // 16, 4 * size, memory_at + BARRIER_BYTES
    turns, rows_per_warp, pitch, n_arrivals = rows_per_lane // 4, 32 // n_warps, row_bytes + ROW_PAD, np.int32(n_warps)
    stays, goes = _one_row(False), _one_row(True)

    @jit
    def barrier(turn):
        return shared_address(cuda.shared.array(0, types.uint8)) + (memory_at + 8 * turn)

    @jit
    def own_byte(thread):
        return rows_at + (thread & 7) * pitch + 16 * (thread >> 3)

    @jit
    def own(thread):
        return shared_address(cuda.shared.array(0, types.uint8)) + own_byte(thread)

    @jit
    def begin(memory, head, at, state, thread):
        if thread == 0:
            for turn in range(turns):
                set_up(barrier(turn), n_arrivals)
        cuda.syncthreads()
        # What a warp has in common, said so: bulk copies take one operand a warp.
        first = np.int64(shuffle_int(np.int32(thread >> 5), np.int32(0)) * rows_per_warp)
        source = global_address(memory) + (np.int64(shuffle_int(head, np.int32(0))) * size + first) * row_bytes
        to = shared_address(cuda.shared.array(0, types.uint8)) + (rows_at + first * pitch)
        for turn in range(turns):
            for i in range(rows_per_warp):
                row = 32 * turn + i
                bulk_copy(to + row * pitch, source + row * row_bytes, np.int32(row_bytes), barrier(turn), np.int32(1))
            arrive(barrier(turn), np.int32(rows_per_warp * row_bytes))

    @jit
    def multiply(x, at, state, thread, sums):
        source = own(thread)
        for c in range(COLUMNS):
            sums[c] = ZERO
        for r in range(0, rows_per_lane, 4):
            values = load_four_floats(x, 4 * (at + r))
            wait_for_bytes(barrier(r >> 2), np.int32(0))
            for i in range(4):
                m0, m1, m2, m3 = shared_four_floats(source + 8 * (r + i) * pitch)
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
                m0, m1, m2, m3 = shared_four_floats(source + 8 * (r + i) * pitch)
                if leaves:
                    goes(k[i], q[i], m0, m1, m2, m3, decay, d0, d1, d2, d3, x, memory, 4 * (home + 8 * (r + i) * size), sums)
                else:
                    at = np.int64(own_byte(thread) + 8 * (r + i) * pitch)
                    stays(k[i], q[i], m0, m1, m2, m3, decay, d0, d1, d2, d3, x, memory, at, sums)
        for c in range(COLUMNS):
            sums[c] = sum_eight(sums[c])

    return SimpleNamespace(begin=begin, multiply=multiply, advance=advance, n_state=1)
