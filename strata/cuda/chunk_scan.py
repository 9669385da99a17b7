"""The gated delta net's recurrent scan for prompt chunks: many tokens of a segment, one after the other.

The operations and orders of host/gdn.py, the same as in scan.py; here the memory is spread thinner.  Eight threads hold one column
of a head's memory M [S, S] in registers: thread l of the eight is lane l and has rows l, l + 8, l + 16, ...  A block has 16 columns.  One
pass over a thread's rows updates M, a second one goes on with two chains, q.M of this token and k.M of the next one: nothing of M
changes in between.  Only the sum of k.M is waited for by the next token; the lanes of q.M are summed for eight tokens at
once, in the same tree, each thread ending with one token.  k, q, v and the gates of following tokens travel to shared memory two
batches ahead, and to registers before the sum that the next token begins with.

Bounds at 48 heads of 128 x 128 on 132 multiprocessors: 384 blocks, three on each; per token and thread 80 operations on M (that an
entry is to become +0 is rare and looked for with one comparison each) and about 35 others, twelve warps on four schedulers: about
345 cycles a token where issue is the bound, while the chain from token to token takes about 200: 0.4 ms for 2,048 tokens.

Flat shapes as in scan.py.  Does not know: convolution, projections, the output gate.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.addresses import copier, global_address, shared_address, shared_four_floats, shared_two_floats
from strata.cuda.device import CudaDevice
from strata.cuda.float_tile_parts import shared_float
from strata.cuda.gdn import check, launch_gate_norm
from strata.cuda.launch import Launch, Shape
from strata.cuda.products import Coded
from strata.cuda.scan import ZERO, _flushed, _tail_mover, any_small_of, launch_scan
from strata.cuda.seam import Target, add, copies, exchange_float, fma, jit, kernel, launch_dependents, mul, sub, wait_for_dependency
from strata.cuda.shapes import require
from strata.cuda.warps import sum_eight
from strata.cuda.window_tables import WindowTables
from strata.model.config import ModelConfig

THREADS, COLUMNS = 128, 16
"""Threads and memory columns of a block."""
BLOCKS = 3
"""Blocks that a multiprocessor should hold: bounds the registers."""
N_EXTRAS = COLUMNS + 2
"""Values of a token beside k and q: v of the block's columns, the decay, the strength."""
PAD = 4
BATCH, SLOTS = 8, 3
"""Tokens that travel together, and batches in shared memory: this one, the next one, one on its way."""


MOST_WINDOW_ROWS = 64
"""Up to this many rows the window's scan is taken: one launch that finishes its output."""


@dataclass(frozen=True, slots=True)
class ChunkScanShape:
    """Geometry of a chunk scan; `keep`: the memory and the convolution's tail move on."""

    size: int
    n_k_heads: int
    n_v_heads: int
    n_taps: int
    keep: bool

    @property
    def n_parts(self) -> int:
        return self.size // COLUMNS

    @property
    def n_threads(self) -> int:
        return THREADS

    @property
    def channels(self) -> int:
        return (2 * self.n_k_heads + self.n_v_heads) * self.size

    @property
    def pitch(self) -> int:
        """Floats between two lanes' parts of k or q: eight 16-byte reads meet no bank twice."""
        return self.size // 8 + PAD

    @property
    def token_bytes(self) -> int:
        return 4 * (2 * 8 * self.pitch + N_EXTRAS + 2)

    @property
    def shared_bytes(self) -> int:
        return SLOTS * BATCH * self.token_bytes


def _token_step(shape: ChunkScanShape):
    """Build the parts of a token's way, on addresses in shared memory; `gates` is (v, decay, strength).

    load(at, values); gates_of(at, group) -> gates; first(k, state) -> r = k.M
    step(gates, after, then, lane_at, group, k, k_next, q, state, r) -> (o's lane, gates and r of the next token), for the token
    whose k and q are in registers: `after` is the token behind it, whose q takes the place of q, and `then` the one behind that,
    whose k takes the place of k.
    """
    rows_per_lane, vector_bytes = shape.size // 8, 4 * 8 * shape.pitch

    @jit
    def load(at, values):
        for i in range(0, rows_per_lane, 4):
            values[i], values[i + 1], values[i + 2], values[i + 3] = shared_four_floats(at + 4 * i)

    @jit
    def gates_of(at, group):
        decay, strength = shared_two_floats(at + (2 * vector_bytes + 4 * COLUMNS))
        return shared_float(at + 2 * vector_bytes + 4 * group), decay, strength

    @jit
    def first(k, state):
        total = ZERO
        for i in range(rows_per_lane):
            total = fma(k[i], state[i], total)
        return sum_eight(total)

    @jit
    def step(gates, after, then, lane_at, group, k, k_next, q, state, r):
        v, decay, strength = gates
        delta = mul(strength, fma(sub(ZERO, decay), r, v))
        for i in range(rows_per_lane):
            state[i] = fma(k[i], delta, mul(decay, state[i]))
        small = any_small_of(state, 0)
        for i in range(8, rows_per_lane, 8):
            small |= any_small_of(state, i)
        if small:
            for i in range(rows_per_lane):
                state[i] = _flushed(state[i])
        load(then + lane_at, k)
        o, following = ZERO, ZERO
        for i in range(rows_per_lane):
            following = fma(k_next[i], state[i], following)
            o = fma(q[i], state[i], o)
        load(after + (vector_bytes + lane_at), q)
        return o, gates_of(after, group), sum_eight(following)

    return load, gates_of, first, step


@jit
def _handed_over(upper, low, high, step):
    """One level of the tree for two sums: the thread keeps one and hands the other over."""
    return add(high if upper else low, exchange_float(low if upper else high, step))


@jit
def _sum_of_own_token(o, lane):
    """The sum over eight lanes of o[lane]: the tree of `sum_eight` for BATCH tokens at once."""
    for i in range(4):
        o[i] = _handed_over((lane & 4) != 0, o[i], o[i + 4], np.int32(4))
    for i in range(2):
        o[i] = _handed_over((lane & 2) != 0, o[i], o[i + 2], np.int32(2))
    return _handed_over((lane & 1) != 0, o[0], o[1], np.int32(1))


def _batch_copier(to_step: int, from_step: int, target: Target):
    """Build `copy(to, source, left)`: one value of each of the next BATCH tokens, of which `left` are there."""
    c0, c1, c2, c3, c4, c5, c6, c7 = (copier(4, to_step * u, from_step * u, target) for u in range(BATCH))

    @jit
    def copy(to, source, left):
        if left >= BATCH:
            c0(to, source)
            c1(to, source)
            c2(to, source)
            c3(to, source)
            c4(to, source)
            c5(to, source)
            c6(to, source)
            c7(to, source)
        else:
            for u in range(left):
                c0(to + to_step * u, source + from_step * u)

    return copy


def _batch_fetcher(shape: ChunkScanShape, target: Target):
    """Build `fetch(slot, thread, left, k_from, q_from, extra_from, extra_step)`: the next BATCH tokens, of which `left` are there."""
    copy, copy_one = _batch_copier(shape.token_bytes, 4 * shape.channels, target), copier(4, 0, 0, target)
    size, pitch, token_bytes, vector_bytes = shape.size, shape.pitch, shape.token_bytes, 4 * 8 * shape.pitch

    @jit
    def fetch(slot, thread, left, k_from, q_from, extra_from, extra_step):
        own = 4 * ((thread & 7) * pitch + (thread >> 3))
        if thread < size:
            copy(slot + own, k_from, left)
            copy(slot + (own + vector_bytes), q_from, left)
        if thread < N_EXTRAS:
            to, source = slot + (2 * vector_bytes + 4 * thread), extra_from
            for _ in range(min(np.int32(BATCH), left)):
                copy_one(to, source)
                to, source = to + token_bytes, source + extra_step

    return fetch


@cache
def chunk_scan_kernel(shape: ChunkScanShape, target: Target):
    """Return the kernel; grid (v_heads * n_parts, segments), THREADS threads.

    kernel(w, g, beta, u, memory, tail, first, count, slot, read_scale, out).
    """
    size, n_parts, n_k_heads, n_v_heads, channels, keep = (
        shape.size, shape.n_parts, shape.n_k_heads, shape.n_v_heads, shape.channels, shape.keep
    )
    rows_per_lane, pitch, token_bytes = size // 8, shape.pitch, shape.token_bytes
    slot_bytes, batch_step = BATCH * token_bytes, 4 * BATCH * channels
    load, gates_of, start, step = _token_step(shape)
    vector_bytes, out_step = 4 * 8 * shape.pitch, n_v_heads * size
    fetch, move_tail = _batch_fetcher(shape, target), _tail_mover(shape)
    done = copies(target, 0)
    commit, wait_all = done.commit, done.wait
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS, BLOCKS)
    def run(w, g, beta, u, memory, tail, first, count, slot, read_scale, out):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        state, q = cuda.local.array(rows_per_lane, np.float32), cuda.local.array(rows_per_lane, np.float32)
        k, k_next = cuda.local.array(rows_per_lane, np.float32), cuda.local.array(rows_per_lane, np.float32)
        sums = cuda.local.array(BATCH, np.float32)
        wait_before()
        segment = np.int32(cuda.blockIdx.y)
        n = count[segment]
        if n == 0:
            return
        thread = np.int32(cuda.threadIdx.x)
        lane, group = thread & 7, thread >> 3
        h, part = np.int32(cuda.blockIdx.x) // n_parts, np.int32(cuda.blockIdx.x) % n_parts
        column, row, place = part * COLUMNS + group, np.int64(first[segment]), np.int64(slot[segment])
        home = ((place * n_v_heads + h) * size + lane) * size + column
        q_at = (h % n_k_heads) * size
        inputs = global_address(w) + 4 * row * channels
        k_from, q_from = inputs + 4 * (n_k_heads * size + q_at + thread), inputs + 4 * (q_at + thread)
        extra_from, extra_step = inputs + 4 * ((2 * n_k_heads + h) * size + part * COLUMNS + thread), 4 * channels
        if thread >= COLUMNS:
            gate = global_address(g) if thread == COLUMNS else global_address(beta)
            extra_from, extra_step = gate + 4 * (row * n_v_heads + h), 4 * n_v_heads
        here, after, coming = shared + 0, shared + slot_bytes, shared + 2 * slot_bytes
        fetch(here, thread, n, k_from, q_from, extra_from, extra_step)
        k_from, q_from, extra_from = k_from + batch_step, q_from + batch_step, extra_from + BATCH * extra_step
        fetch(after, thread, np.int32(n - BATCH), k_from, q_from, extra_from, extra_step)
        commit()
        for i in range(rows_per_lane):
            state[i] = memory[home + 8 * i * size]
        wait_all()
        cuda.syncthreads()
        lane_at = 4 * pitch * lane
        to = (row * n_v_heads + h) * size + column
        load(here + lane_at, k)
        load(here + (lane_at + token_bytes), k_next)
        load(here + (lane_at + vector_bytes), q)
        gates, r = gates_of(here, group), start(k, state)
        for begin in range(0, n, BATCH):
            wait_all()
            cuda.syncthreads()
            k_from, q_from, extra_from = k_from + batch_step, q_from + batch_step, extra_from + BATCH * extra_step
            left = np.int32(n - begin)
            fetch(coming, thread, np.int32(left - 2 * BATCH), k_from, q_from, extra_from, extra_step)
            commit()
            if left >= BATCH:
                for t in range(0, BATCH - 2, 2):
                    at = here + t * token_bytes
                    sums[t], gates, r = step(gates, at + token_bytes, at + 2 * token_bytes, lane_at, group, k, k_next, q, state, r)
                    sums[t + 1], gates, r = step(gates, at + 2 * token_bytes, at + 3 * token_bytes, lane_at, group, k_next, k, q, state, r)
                at = here + (BATCH - 1) * token_bytes
                sums[BATCH - 2], gates, r = step(gates, at, after + 0, lane_at, group, k, k_next, q, state, r)
                sums[BATCH - 1], gates, r = step(gates, after + 0, after + token_bytes, lane_at, group, k_next, k, q, state, r)
                out[np.uint64(to + lane * out_step)] = mul(_sum_of_own_token(sums, lane), read_scale)
                to += BATCH * out_step
            else:
                for t in range(left):
                    at = here + t * token_bytes
                    load(at + lane_at, k)
                    load(at + (lane_at + token_bytes), k_next)
                    o, gates, r = step(gates, at + token_bytes, at + token_bytes, lane_at, group, k, k_next, q, state, r)
                    o = mul(sum_eight(o), read_scale)
                    if lane == 0:
                        out[np.uint64(to)] = o
                    to += out_step
            here, after, coming = after, coming, here
        if keep:
            for i in range(rows_per_lane):
                memory[home + 8 * i * size] = state[i]
            move_tail(u, row, tail, place, n, np.int32(cuda.blockIdx.x))
        go_on()

    return run


def launch_any_scan(
    device: CudaDevice, config: ModelConfig, window: WindowTables, keep: bool, w, g, beta, u, memory, tail, n_slots: int, read_scale,
    out, z, weight, gated, coded: Coded, programmatic: bool = False,
) -> tuple[Launch, ...]:
    """Scan a window's or a chunk's rows into out [rows, v_heads * S], then norm, gate and code it; with `keep` memory and tail move on."""
    if window.n_rows <= MOST_WINDOW_ROWS:
        rest = (n_slots, read_scale, out, z, weight, gated, coded, programmatic)
        return (launch_scan(device, config, window, keep, w, g, beta, u, memory, tail, *rest),)
    check(config)
    require(config.ssm_state in (64, 128), f"ssm state of {config.ssm_state}", "the scan holds heads of 64 or 128 values in registers")
    shape = ChunkScanShape(config.ssm_state, config.n_ssm_qk_heads, config.n_ssm_v_heads, config.conv_taps, keep)
    arguments = (w, g, beta, u, memory, tail, window.first, window.count, window.segment_slot, np.float32(read_scale), out)
    grid = (shape.n_v_heads * shape.n_parts, window.n_segments)
    kernel_of = chunk_scan_kernel(shape, device.target)
    scanned = Launch(device, kernel_of, Shape(grid, THREADS, shape.shared_bytes), arguments, programmatic)
    return scanned, launch_gate_norm(device, config, out, z, weight, window.n_rows, gated, coded, programmatic)
