"""The gated delta net of a decode window in one kernel: convolution, head norms, gates, scan, output gate, codes, state.

What gdn.py's prepare and scan.py's scan do, in the same orders, for segments of up to MOST_ROWS rows.  A block has one v head of
one segment: its warps make w of q, k and v of every token (the blocks of v heads that share a q and k head make those each for
itself), then the tokens go through the head's memory one by one.  What no kernel of a window writes (memory, tail, taps, norms) is
fetched before the previous kernel has ended, the memory by way of shared memory where a card copies asynchronously; what writes
memory and tail between windows is waited for by a window's first kernel.

The tail of the v head's channels is moved by its block, that of q and k channels by the block that comes last of those that
read it; a counter tells, and the last one sets it back.  Which block that is changes no value.

Flat shapes: u, w [rows, channels]; alpha, logits, g, beta [rows, v_heads]; tail [slots, taps - 1, channels]; memory [slots, v_heads,
S, S]; z, gated [rows, v_heads * S]; counters int32 [segments * k_heads], all 0.  w, g and beta are left for a replay where the
memory is not kept.  Does not know: projections, replays.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.addresses import copier, global_address, shared_address, shared_four_floats
from strata.cuda.device import CudaDevice
from strata.cuda.gdn import check, convolution, decay_of, head_gate
from strata.cuda.group_codes import arrays_of, group_coder
from strata.cuda.launch import Launch, Shape
from strata.cuda.on_cuda import sigmoid
from strata.cuda.products import Coded
from strata.cuda.scan import COLUMNS, PAD, _column_helpers, _memory_helpers
from strata.cuda.seam import Target, add, copies, div, fma, jit, kernel, launch_dependents, mul, sqrt, sub, wait_for_dependency
from strata.cuda.shapes import require
from strata.cuda.warps import ONE, sum_row
from strata.cuda.window_tables import WindowTables
from strata.model.config import ModelConfig

ZERO = np.float32(0.0)
MOST_ROWS = 8
"""Rows of a segment whose w fits into a block's shared memory."""


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Geometry and variant of the kernel."""

    size: int
    n_k_heads: int
    n_v_heads: int
    n_taps: int
    keep: bool
    staged: bool

    @property
    def n_threads(self) -> int:
        return 8 * self.size // COLUMNS

    @property
    def channels(self) -> int:
        return (2 * self.n_k_heads + self.n_v_heads) * self.size

    @property
    def pitch(self) -> int:
        """Floats between two lanes' parts of k or q in shared memory."""
        return self.size // 8 + PAD

    @property
    def vector(self) -> int:
        """Floats of k or q of a token."""
        return 8 * self.pitch

    @property
    def token(self) -> int:
        """Floats of a token: k, q, v."""
        return 2 * self.vector + self.size

    @property
    def gates_at(self) -> int:
        """Floats before the tokens' decays and strengths; outputs of two tokens follow, then the flag of who comes last."""
        return MOST_ROWS * self.token

    @property
    def outputs_at(self) -> int:
        return self.gates_at + 2 * MOST_ROWS

    @property
    def last_at(self) -> int:
        return self.outputs_at + 2 * self.size

    @property
    def shared_bytes(self) -> int:
        return self.memory_at + (4 * self.size * self.size if self.staged else 0)

    @property
    def memory_at(self) -> int:
        """Bytes before the head's memory."""
        return 4 * (self.last_at + 4)


def _inputs(shape: WindowShape):
    """Build `fetch(...)` and `make(...)`: a warp's w of one of a token's vectors (0 k, 1 q, 2 v) to shared memory."""
    size, n_k, channels, pitch, per_thread = shape.size, shape.n_k_heads, shape.channels, shape.pitch, shape.size // 32
    vector, token, keep = shape.vector, shape.token, shape.keep
    bring, convolve = convolution(shape.n_taps, channels)

    @jit
    def channel_of(kind, h, i):
        unit = 2 * n_k + h
        if kind < 2:
            unit = h % n_k + (n_k if kind == 0 else 0)
        return unit * size + i

    @jit
    def fetch(tail, conv, row, begin, place, kind, h, thread, taps, past):
        for m in range(per_thread):
            bring(tail, conv, row, begin, place, channel_of(kind, h, 32 * m + thread), m, taps, past)

    @jit
    def make(u, row, begin, kind, h, eps, thread, taps, past, values, staged, w):
        total = ZERO
        for m in range(per_thread):
            values[m] = convolve(u, row, begin, channel_of(kind, h, 32 * m + thread), m, taps, past)
            total = fma(values[m], values[m], total)
        scale = div(ONE, sqrt(add(sum_row(total), eps)))
        at = (row - begin) * token + kind * vector
        for m in range(per_thread):
            i = 32 * m + thread
            value = mul(values[m], scale) if kind < 2 else values[m]
            staged[at + ((i & 7) * pitch + (i >> 3) if kind < 2 else i)] = value
            if not keep and (kind == 2 or h < n_k):
                w[np.int64(row) * channels + channel_of(kind, h, i)] = value

    return fetch, make, channel_of


def _memory_arrival(shape: WindowShape, target: Target):
    """Build `begin(memory, at, state, thread)` and `end(state, thread)`: a thread's columns of the memory to its registers."""
    rows_per_lane, n_threads, size, memory_at = shape.size // 8, shape.n_threads, shape.size, shape.memory_at
    fetch, _ = _memory_helpers(size)
    copy, move = copier(16, 0, 0, target, once=True), copies(target, 0)
    commit, wait = move.commit, move.wait

    @jit
    def nothing(state, thread):
        return

    @jit
    def fetch_now(memory, at, state, thread):
        fetch(memory, at, state)

    @jit
    def begin(memory, at, state, thread):
        to = shared_address(cuda.shared.array(0, types.uint8)) + (memory_at + 16 * thread)
        source = global_address(memory) + 4 * at
        for r in range(rows_per_lane):
            copy(to + 16 * r * n_threads, source + 32 * r * size)
        commit()

    @jit
    def end(state, thread):
        wait()
        source = shared_address(cuda.shared.array(0, types.uint8)) + (memory_at + 16 * thread)
        for r in range(rows_per_lane):
            state[4 * r], state[4 * r + 1], state[4 * r + 2], state[4 * r + 3] = shared_four_floats(source + 16 * r * n_threads)

    return (begin, end) if shape.staged else (fetch_now, nothing)


def _tail_mover(shape: WindowShape):
    """Build `move(u, first, tail, slot, n, channel)`: a channel's tail = the last of (tail, then the segment's n rows of u)."""
    depth, channels = shape.n_taps - 1, shape.channels

    @jit
    def move(u, first, tail, slot, n, channel):
        base = np.int64(slot) * depth * channels + channel
        for t in range(depth):
            source = t + n
            if source < depth:
                tail[base + t * channels] = tail[base + source * channels]
            else:
                tail[base + t * channels] = u[np.int64(first + source - depth) * channels + channel]

    return move


@cache
def window_scan_kernel(shape: WindowShape, target: Target):
    """Return the kernel; grid (v_heads, segments), shape.n_threads threads.

    kernel(u, alpha, logits, tail, conv, bias, decay, memory, first, count, slot, read_scale, eps, z, weight, counters, w, g, beta,
    gated, codes, turned, scales, sums).
    """
    size, n_k, n_v, n_threads, keep = shape.size, shape.n_k_heads, shape.n_v_heads, shape.n_threads, shape.keep
    pitch, vector, token, gates_at, outputs_at, last_at = shape.pitch, shape.vector, shape.token, shape.gates_at, shape.outputs_at, shape.last_at
    n_warps, per_thread, n_state = n_threads // 32, size // 32, COLUMNS * (size // 8)
    n_taps_held, n_past = per_thread * shape.n_taps, per_thread * (shape.n_taps - 1)
    multiply, update = _column_helpers(size)
    begin_memory, end_memory = _memory_arrival(shape, target)
    _, store_memory = _memory_helpers(size)
    fetch, make, channel_of = _inputs(shape)
    move_tail, gate = _tail_mover(shape), head_gate(size)
    code_group = group_coder(target)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @jit
    def gates(alpha, logits, bias, rate, row, t, h, staged, g, beta):
        """A token's decay and strength, by one thread."""
        at = row * n_v + h
        fades, strength = decay_of(alpha[at], bias, rate), sigmoid(logits[at])
        staged[gates_at + 2 * t], staged[gates_at + 2 * t + 1] = fades, strength
        if not keep:
            g[at], beta[at] = fades, strength

    @jit
    def advance(staged, t, lane, column, state, products, read_scale):
        """One token through the thread's columns; return the output value of the lane's column."""
        at, v_at = t * token + lane * pitch, t * token + 2 * vector + column
        fades, strength = staged[gates_at + 2 * t], staged[gates_at + 2 * t + 1]
        multiply(staged, at, state, products)
        minus = sub(ZERO, fades)
        d0 = mul(strength, fma(minus, products[0], staged[v_at]))
        d1 = mul(strength, fma(minus, products[1], staged[v_at + 1]))
        d2 = mul(strength, fma(minus, products[2], staged[v_at + 2]))
        d3 = mul(strength, fma(minus, products[3], staged[v_at + 3]))
        update(staged, at, state, fades, d0, d1, d2, d3)
        multiply(staged, at + vector, state, products)
        mine = products[1] if lane == 1 else products[0]
        mine = products[2] if lane == 2 else mine
        return mul(products[3] if lane == 3 else mine, read_scale)

    @kernel(n_threads, 512 // n_threads if shape.staged else 1)
    def run(
        u, alpha, logits, tail, conv, bias, decay, memory, first, count, slot, read_scale, eps, z, weight, counters, w, g, beta,
        gated, codes, turned, scales, sums,
    ):
        staged, words = cuda.shared.array(0, types.float32), cuda.shared.array(0, types.int32)
        state, products = cuda.local.array(n_state, np.float32), cuda.local.array(COLUMNS, np.float32)
        taps, past = cuda.local.array(n_taps_held, np.float32), cuda.local.array(n_past, np.float32)
        values = cuda.local.array(per_thread, np.float32)
        go_on()
        h, segment = np.int32(cuda.blockIdx.x), np.int32(cuda.blockIdx.y)
        n, begin, place = count[segment], first[segment], slot[segment]
        if n == 0:
            return
        thread = np.int32(cuda.threadIdx.x)
        lane, in_warp, warp = thread & 7, thread & 31, thread >> 5
        column = (thread >> 3) * COLUMNS
        home = ((np.int64(place) * n_v + h) * size + lane) * size + column
        begin_memory(memory, home, state, thread)
        if warp < 3 * n:
            fetch(tail, conv, np.int32(begin + warp // 3), begin, place, warp % 3, h, in_warp, taps, past)
        own_bias, own_rate = bias[h], decay[h]
        factor = weight[thread] if thread < size else ZERO
        wait_before()
        z_value = z[(np.int64(begin) * n_v + h) * size + thread] if thread < size else ZERO
        if warp == n_warps - 1 and in_warp < n:
            gates(alpha, logits, own_bias, own_rate, np.int32(begin + in_warp), in_warp, h, staged, g, beta)
        for task in range(warp, 3 * n, n_warps):
            row, kind = np.int32(begin + task // 3), np.int32(task % 3)
            if task >= n_warps:
                fetch(tail, conv, row, begin, place, kind, h, in_warp, taps, past)
            make(u, row, begin, kind, h, eps, in_warp, taps, past, values, staged, w)
        end_memory(state, thread)
        cuda.syncthreads()
        if keep and thread == 0:
            before = cuda.atomic.add(counters, segment * n_k + h % n_k, 1)
            words[last_at] = before
        for t in range(n):
            value = advance(staged, t, lane, column, state, products, read_scale)
            if keep and t == n - 1:
                store_memory(memory, home, state)
            outputs = outputs_at + (t & 1) * size
            if lane < COLUMNS:
                staged[outputs + column + lane] = value
            cuda.syncthreads()
            if thread < size:
                own = (np.int64(begin + t) * n_v + h) * size + thread
                result = gate(staged, outputs, z_value, factor, eps, in_warp, warp)
                gated[own] = result
                code_group(result, in_warp, own >> 5, codes, turned, scales, sums)
                if t + 1 < n:
                    z_value = z[own + n_v * size]
        if keep:
            if thread < size:
                move_tail(u, begin, tail, place, n, channel_of(2, h, thread))
            if words[last_at] == (n_v - 1 - h % n_k) // n_k:
                for i in range(thread, 2 * size, n_threads):
                    move_tail(u, begin, tail, place, n, channel_of(i // size, h, i % size))
                if thread == 0:
                    counters[segment * n_k + h % n_k] = 0

    return run


def launch_window_scan(
    device: CudaDevice, config: ModelConfig, window: WindowTables, keep: bool, u, alpha, logits, tail, conv, bias, decay, memory,
    read_scale, z, weight, counters, w, g, beta, gated, coded: Coded, programmatic: bool = False,
) -> Launch:
    """gated [rows, v_heads * S] and its codes from a decode window's projections; with `keep` memory and tail move on.

    Segments have up to MOST_ROWS rows.  Without `keep` w, g and beta are filled for `scan.launch_commit`.
    """
    check(config)
    size = config.ssm_state
    require(size in (64, 128), f"ssm state of {size}", "the scan holds heads of 64 or 128 values in registers")
    require(window.n_rows <= MOST_ROWS, f"{window.n_rows} rows", f"a segment has {MOST_ROWS} at most", "use launch_prepare and launch_scan")
    shape = WindowShape(size, config.n_ssm_qk_heads, config.n_ssm_v_heads, config.conv_taps, keep, device.target.async_copies)
    arguments = (
        u, alpha, logits, tail, conv, bias, decay, memory, window.first, window.count, window.segment_slot, np.float32(read_scale),
        np.float32(config.rms_epsilon), z, weight, counters, w, g, beta, gated, *arrays_of(coded),
    )
    grid = (shape.n_v_heads, window.n_segments)
    run = window_scan_kernel(shape, device.target)
    return Launch(device, run, Shape(grid, shape.n_threads, shape.shared_bytes), arguments, programmatic)
