"""The gated delta net of a decode window in one kernel: convolution, head norms, gates, scan, output gate, codes, state.

What gdn.py's prepare and scan.py's scan do, in the same orders, for segments of up to MOST_ROWS rows.  A block has one v head of
one segment: its warps make w of q, k and v of every token (the blocks of v heads that share a q and k head make those each for
itself), then the tokens go through the head's memory one by one, and all of them meet the output gate at the end: no thread waits
for another between tokens.  What no kernel of a window writes (memory, tail, taps, norms) is asked for before the previous kernel
has ended; what writes memory and tail between windows is waited for by a window's first kernel.

The tail of the v head's channels is moved by its block, that of q and k channels by the block that comes last of those that
read it; a counter of each kind tells (k in the lower half of a word, q in the upper), and the last one sets it back.  Which block
that is changes no value.

One head a block, not a part of one: at one row the block's instructions (640 cycles a token) cost less than the meeting of parts
at the head's norm would (a store, a fence, an atomic addition and a load, each a way to the second-level cache and back).

Flat shapes: u, w [rows, channels]; alpha, logits, g, beta [rows, v_heads]; tail [slots, taps - 1, channels]; memory [slots, v_heads,
S, S]; z, gated [rows, v_heads * S]; counters int32 [segments * k_heads], all 0.  w, g and beta are left for a replay where the
memory is not kept.  Does not know: projections, replays.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.device import CudaDevice
from strata.cuda.float_tiles import fits as large_blocks_fit
from strata.cuda.gdn import check, decay_of, head_gate
from strata.cuda.group_codes import arrays_of, group_coder
from strata.cuda.launch import Launch, Shape
from strata.cuda.on_cuda import sigmoid
from strata.cuda.products import Coded
from strata.cuda.scan import COLUMNS, PAD
from strata.cuda.seam import Target, fma, jit, kernel, launch_dependents, mul, shuffle_int, sub, wait_for_dependency
from strata.cuda.shapes import require
from strata.cuda.window_inputs import window_inputs
from strata.cuda.window_memory import in_registers, in_shared
from strata.cuda.window_tables import WindowTables
from strata.model.config import ModelConfig

ZERO = np.float32(0.0)
MOST_ROWS = 8
"""Rows of a segment whose w fits into a block's shared memory."""
ROWS_BESIDE_MEMORY = 4
"""Rows that go together where the memory lies in shared memory too: three blocks fit on a multiprocessor."""
MOST_REGISTER_BLOCKS = 264
"""Blocks up to which memories lie in registers: two on each multiprocessor of a large card."""


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Geometry and variant of the kernel."""

    size: int
    n_k_heads: int
    n_v_heads: int
    n_taps: int
    keep: bool
    in_shared: bool

    @property
    def n_threads(self) -> int:
        return 8 * self.size // COLUMNS

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
        """Floats of a token: k, q, v; its output takes the place of v."""
        return 2 * self.vector + self.size

    @property
    def together(self) -> int:
        """Tokens whose w lies in shared memory at a time."""
        return ROWS_BESIDE_MEMORY if self.in_shared else MOST_ROWS

    @property
    def gates_at(self) -> int:
        """Floats before the tokens' decays and strengths."""
        return self.together * self.token

    @property
    def memory_at(self) -> int:
        """Bytes before the head's memory."""
        return 4 * (self.gates_at + 2 * self.together)

    @property
    def shared_bytes(self) -> int:
        return self.memory_at + (4 * self.size * self.size if self.in_shared else 0)

    @property
    def blocks_at_once(self) -> int:
        """Blocks that a multiprocessor should hold: bounds the registers."""
        return (768 if self.in_shared else 512) // self.n_threads


@cache
def window_scan_kernel(shape: WindowShape, target: Target):
    """Return the kernel; grid (v_heads, segments), shape.n_threads threads.

    kernel(u, alpha, logits, tail, conv, bias, decay, memory, first, count, slot, read_scale, eps, z, weight, counters, w, g, beta,
    gated, codes, turned, scales, sums).
    """
    size, n_k, n_v, n_threads, keep, together = shape.size, shape.n_k_heads, shape.n_v_heads, shape.n_threads, shape.keep, shape.together
    pitch, vector, token, gates_at = shape.pitch, shape.vector, shape.token, shape.gates_at
    n_warps, per_thread = n_threads // 32, size // 32
    n_taps_held, n_past = per_thread * shape.n_taps, per_thread * (shape.n_taps - 1)
    held = in_shared(size, shape.memory_at, target) if shape.in_shared else in_registers(size, keep)
    begin_memory, arrive, multiply, advance, n_state = held.begin, held.arrive, held.multiply, held.advance, held.n_state
    inputs = window_inputs(size, n_k, n_v, shape.n_taps, pitch, keep)
    fetch, recent, make, store_tail = inputs.fetch, inputs.recent, inputs.make, inputs.store_tail
    gate, code_group = head_gate(size), group_coder(target)
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
    def read(staged, t, lane, thread, column, state, products, read_scale, memory, home, leaves):
        """One token through the thread's columns; its output takes the place of v."""
        at, v_at = t * token + lane * pitch, t * token + 2 * vector + column
        fades, strength = staged[gates_at + 2 * t], staged[gates_at + 2 * t + 1]
        multiply(staged, at, state, thread, products)
        minus = sub(ZERO, fades)
        d0 = mul(strength, fma(minus, products[0], staged[v_at]))
        d1 = mul(strength, fma(minus, products[1], staged[v_at + 1]))
        d2 = mul(strength, fma(minus, products[2], staged[v_at + 2]))
        d3 = mul(strength, fma(minus, products[3], staged[v_at + 3]))
        advance(staged, at, at + vector, state, thread, fades, d0, d1, d2, d3, memory, home, leaves, products)
        mine = products[1] if lane == 1 else products[0]
        mine = products[2] if lane == 2 else mine
        mine = mul(products[3] if lane == 3 else mine, read_scale)
        if lane < COLUMNS:
            staged[v_at + lane] = mine

    @jit
    def take_ticket(counters, place, kind, in_warp):
        """How many blocks read the tail of the warp's k or q before this one; for `finish_tail`."""
        if kind < 2 and in_warp == 0:
            return np.int32(cuda.atomic.add(counters, place, np.int32(65536) if kind == 1 else np.int32(1)))
        return np.int32(0)

    @jit
    def is_last(counters, place, kind, in_warp, ticket, n_sharing):
        before = shuffle_int(ticket, np.int32(0))
        last = np.int32((before >> 16) if kind == 1 else (before & 65535)) == n_sharing - 1
        if last and in_warp == 0:
            cuda.atomic.add(counters, place, np.int32(-65536 * n_sharing) if kind == 1 else np.int32(-n_sharing))
        return last

    @kernel(n_threads, shape.blocks_at_once)
    def run(
        u, alpha, logits, tail, conv, bias, decay, memory, first, count, slot, read_scale, eps, z, weight, counters, w, g, beta,
        gated, codes, turned, scales, sums,
    ):
        staged = cuda.shared.array(0, types.float32)
        state, products = cuda.local.array(n_state, np.float32), cuda.local.array(COLUMNS, np.float32)
        taps, past = cuda.local.array(n_taps_held, np.float32), cuda.local.array(n_past, np.float32)
        values, fresh = cuda.local.array(per_thread, np.float32), cuda.local.array(per_thread, np.float32)
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
        if warp < 3 * min(n, np.int32(together)):
            fetch(tail, conv, np.int32(begin + warp // 3), begin, place, np.int32(warp % 3), h, in_warp, taps, past)
        own_bias, own_rate = bias[h], decay[h]
        which = warp % per_thread
        factor = weight[32 * which + in_warp]
        ticket, kind_held, counter = np.int32(0), np.int32(0), segment * n_k + h % n_k
        wait_before()
        for done in range(0, n, together):
            rows, row0 = min(np.int32(n - done), np.int32(together)), np.int32(begin + done)
            if done > 0:
                cuda.syncthreads()
            if warp == n_warps - 1 and in_warp < rows:
                gates(alpha, logits, own_bias, own_rate, np.int32(row0 + in_warp), in_warp, h, staged, g, beta)
            for task in range(warp, 3 * rows, n_warps):
                t, kind = np.int32(task // 3), np.int32(task % 3)
                row = np.int32(row0 + t)
                recent(u, row, begin, kind, h, in_warp, past, fresh)
                if done > 0 or task >= n_warps:
                    fetch(tail, conv, row, begin, place, kind, h, in_warp, taps, past)
                make(row, kind, h, eps, in_warp, taps, past, fresh, values, staged, t * token + kind * vector, w)
            if done == 0:
                arrive()
            cuda.syncthreads()
            if keep and done + rows == n:
                kind_held = np.int32((warp - 3 * (rows - 1)) & (n_warps - 1))
                ticket = take_ticket(counters, counter, kind_held, in_warp)
            for t in range(rows):
                read(staged, t, lane, thread, column, state, products, read_scale, memory, home, done + t == n - 1)
            cuda.syncthreads()
            for task in range(warp, per_thread * rows, n_warps):
                t = np.int32(task // per_thread)
                own = (np.int64(row0 + t) * n_v + h) * size + 32 * which + in_warp
                result = gate(staged, t * token + 2 * vector, z[own], factor, eps, in_warp, which)
                gated[own] = result
                code_group(result, in_warp, own >> 5, codes, turned, scales, sums)
        if keep and kind_held < 3:
            if kind_held == 2 or is_last(counters, counter, kind_held, in_warp, ticket, np.int32((n_v - 1 - h % n_k) // n_k + 1)):
                store_tail(tail, place, kind_held, h, in_warp, past, fresh)

    return run


def _shape(device: CudaDevice, config: ModelConfig, n_rows: int, keep: bool, most_register_blocks: int) -> WindowShape:
    n_v, target = config.n_ssm_v_heads, device.target
    in_shared = keep and n_rows * n_v > most_register_blocks and target.async_copies and large_blocks_fit(device.card.capability)
    return WindowShape(config.ssm_state, config.n_ssm_qk_heads, n_v, config.conv_taps, keep, in_shared)


def launch_window_scan(
    device: CudaDevice, config: ModelConfig, window: WindowTables, keep: bool, u, alpha, logits, tail, conv, bias, decay, memory,
    read_scale, z, weight, counters, w, g, beta, gated, coded: Coded, programmatic: bool = False, most_register_blocks: int = MOST_REGISTER_BLOCKS,
) -> Launch:
    """gated [rows, v_heads * S] and its codes from a decode window's projections; with `keep` memory and tail move on.

    Segments have up to MOST_ROWS rows.  Without `keep` w, g and beta are filled for `scan.launch_commit`.
    """
    check(config)
    size = config.ssm_state
    require(size in (64, 128), f"ssm state of {size}", "the scan holds heads of 64 or 128 values in registers")
    require(window.n_rows <= MOST_ROWS, f"{window.n_rows} rows", f"a segment has {MOST_ROWS} at most", "use launch_prepare and launch_scan")
    shape = _shape(device, config, window.n_rows, keep, most_register_blocks)
    arguments = (
        u, alpha, logits, tail, conv, bias, decay, memory, window.first, window.count, window.segment_slot, np.float32(read_scale),
        np.float32(config.rms_epsilon), z, weight, counters, w, g, beta, gated, *arrays_of(coded),
    )
    grid = (shape.n_v_heads, window.n_segments)
    run = window_scan_kernel(shape, device.target)
    return Launch(device, run, Shape(grid, shape.n_threads, shape.shared_bytes), arguments, programmatic)
