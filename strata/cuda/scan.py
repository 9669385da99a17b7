"""The gated delta net's recurrent scan: a window's rows advance each head's memory, token by token.

The order of host/gdn.py.  Eight threads hold four neighbouring columns of a head's memory M [S, S] in registers: thread l of the eight
is lane l and has rows l, l + 8, l + 16, ...  Per token: k.M and q.M are chains in the lane, then the eight-lane tree by
exchanges; delta, update and read as on the host; entries below 2^-100 become +0.  k and q of the next token travel to shared
memory while this one is computed, v and the gates to registers.

A block has one head (`n_parts` = 1) or one part of its columns; columns never meet, so the split changes no bit.  `blockIdx.y`
is the segment; a segment without rows leaves at once.  `finish` (whole heads only): the block also norms, gates and codes
the head's output (`gdn.gate_norm`), one token at a time.

Shapes, flat: w [rows, channels]: q heads, k heads, v heads; g, beta [rows, v_heads]; memory [layers, slots, v_heads, S, S];
first, count, slot int32 [segments]; out [rows, v_heads * S].  Does not know: convolution, projections.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.seam import fma, jit, kernel, load_four_floats, mul, sub
from strata.cuda.warps import sum_eight
from strata.cuda.wide import store_four_floats

ZERO = np.float32(0.0)
SMALLEST = np.float32(2.0**-100)
COLUMNS = 4
"""Columns of the memory per thread."""
PAD = 4
"""Floats between two lanes' rows of k or q in shared memory: eight 16-byte reads meet no bank twice."""


@jit
def flushed(value):
    """Entries below 2^-100 become +0; NaN stays."""
    return ZERO if abs(value) < SMALLEST else value


@jit
def advance(state, at, k, decay, d0, d1, d2, d3):
    """One row of the thread's four columns: M = k delta + g M."""
    state[at] = flushed(fma(k, d0, mul(decay, state[at])))
    state[at + 1] = flushed(fma(k, d1, mul(decay, state[at + 1])))
    state[at + 2] = flushed(fma(k, d2, mul(decay, state[at + 2])))
    state[at + 3] = flushed(fma(k, d3, mul(decay, state[at + 3])))


@cache
def scan_kernel(size: int, n_parts: int, keep: bool, read: bool):
    n_threads = 8 * size // (COLUMNS * n_parts)
    rows_per_lane = size // 8
    pitch = rows_per_lane + PAD
    vector = 8 * pitch
    n_staged, n_state = 4 * vector, COLUMNS * rows_per_lane
    n_loads = (size + n_threads - 1) // n_threads
    part_columns = size // n_parts

    @jit
    def place(i):
        return (i & 7) * pitch + (i >> 3)

    @jit
    def multiply(x, at, state, sums):
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

    @kernel(n_threads)
    def run(w, g, beta, memory, first, count, slot, n_slots, n_k_heads, n_v_heads, read_scale, out):
        staged = cuda.shared.array(n_staged, np.float32, alignment=16)
        state = cuda.local.array(n_state, np.float32)
        sums = cuda.local.array(COLUMNS, np.float32)
        segment = np.int32(cuda.blockIdx.y)
        n = count[segment]
        if n == 0:
            return
        thread = np.int32(cuda.threadIdx.x)
        lane, group = thread & 7, thread >> 3
        h, part = np.int32(cuda.blockIdx.x) // n_parts, np.int32(cuda.blockIdx.x) % n_parts
        column = part * part_columns + group * COLUMNS
        channels = np.int64((2 * n_k_heads + n_v_heads) * size)
        base = ((np.int64(cuda.blockIdx.z) * n_slots + slot[segment]) * n_v_heads + h) * (size * size) + column
        for r in range(rows_per_lane):
            a, b, c, d = load_four_floats(memory, 4 * (base + (lane + 8 * r) * size))
            state[4 * r], state[4 * r + 1], state[4 * r + 2], state[4 * r + 3] = a, b, c, d
        row = np.int64(first[segment])
        k_head = h % n_k_heads
        for m in range(n_loads):
            i = thread + m * n_threads
            if i < size:
                staged[place(i)] = w[row * channels + (n_k_heads + k_head) * size + i]
                if read:
                    staged[vector + place(i)] = w[row * channels + k_head * size + i]
        v_at = np.int64((2 * n_k_heads + h) * size + column)
        v0, v1, v2, v3 = load_four_floats(w, 4 * (row * channels + v_at))
        decay, strength = g[row * n_v_heads + h], beta[row * n_v_heads + h]
        next_k = cuda.local.array(n_loads, np.float32)
        next_q = cuda.local.array(n_loads, np.float32)
        buffer = np.int32(0)
        for t in range(n):
            cuda.syncthreads()
            has_next = t + 1 < n
            n0, n1, n2, n3, next_decay, next_strength = v0, v1, v2, v3, decay, strength
            if has_next:
                after = row + 1
                for m in range(n_loads):
                    i = thread + m * n_threads
                    if i < size:
                        next_k[m] = w[after * channels + (n_k_heads + k_head) * size + i]
                        if read:
                            next_q[m] = w[after * channels + k_head * size + i]
                n0, n1, n2, n3 = load_four_floats(w, 4 * (after * channels + v_at))
                next_decay, next_strength = g[after * n_v_heads + h], beta[after * n_v_heads + h]
            k_at = buffer * 2 * vector + lane * pitch
            multiply(staged, k_at, state, sums)
            minus = sub(ZERO, decay)
            d0 = mul(strength, fma(minus, sums[0], v0))
            d1 = mul(strength, fma(minus, sums[1], v1))
            d2 = mul(strength, fma(minus, sums[2], v2))
            d3 = mul(strength, fma(minus, sums[3], v3))
            for r in range(0, rows_per_lane, 4):
                k0, k1, k2, k3 = load_four_floats(staged, 4 * (k_at + r))
                advance(state, 4 * r, k0, decay, d0, d1, d2, d3)
                advance(state, 4 * r + 4, k1, decay, d0, d1, d2, d3)
                advance(state, 4 * r + 8, k2, decay, d0, d1, d2, d3)
                advance(state, 4 * r + 12, k3, decay, d0, d1, d2, d3)
            if read:
                multiply(staged, k_at + vector, state, sums)
                mine = sums[0]
                mine = sums[1] if lane == 1 else mine
                mine = sums[2] if lane == 2 else mine
                mine = sums[3] if lane == 3 else mine
                if lane < COLUMNS:
                    out[(row * n_v_heads + h) * size + column + lane] = mul(mine, read_scale)
            buffer = np.int32(1 - buffer)
            if has_next:
                for m in range(n_loads):
                    i = thread + m * n_threads
                    if i < size:
                        staged[buffer * 2 * vector + place(i)] = next_k[m]
                        if read:
                            staged[buffer * 2 * vector + vector + place(i)] = next_q[m]
            v0, v1, v2, v3, decay, strength = n0, n1, n2, n3, next_decay, next_strength
            row += 1
        if keep:
            for r in range(rows_per_lane):
                at = 4 * (base + (lane + 8 * r) * size)
                store_four_floats(memory, at, state[4 * r], state[4 * r + 1], state[4 * r + 2], state[4 * r + 3])

    return run
