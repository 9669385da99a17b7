"""The gated delta net of a decode window in one kernel: convolution, head norms, gates, scan, output gate, codes, state.

What gdn.py's prepare and scan.py's scan do, in the same orders, for segments of up to MOST_ROWS rows.  A block has one v head of
one segment: its warps make w of q, k and v of every token (the blocks of v heads that share a q and k head make those each for
itself), then the tokens go through the head's memory one by one, and all of them meet the output gate at the end: no thread waits
for another between tokens.  What no kernel of a window writes (memory, tail, taps, norms) is asked for before the previous kernel
has ended; what writes memory and tail between windows is waited for by a window's first kernel.

The tail of the v head's channels is moved by its block, that of q and k channels by the block that comes last of those that
read it; a ticket tells, and which block that is changes no value.

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

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.delta_net.gdn import check
from strata.cuda.delta_net.scan_parts import COLUMNS, PAD, token_places
from strata.cuda.delta_net.window_inputs import window_inputs
from strata.cuda.delta_net.window_memory import in_registers, in_shared, shared_bytes
from strata.cuda.delta_net.window_tokens import token_gates, token_outputs, token_reader, warp_tasks
from strata.cuda.floats.float_tiles import fits as large_blocks_fit
from strata.cuda.machine.on_cuda import sigmoid
from strata.cuda.machine.seam import Target, kernel, launch_dependents, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.machine.tickets import take_ticket
from strata.cuda.memory.window_tables import WindowTables
from strata.cuda.packed.group_codes import arrays_of
from strata.cuda.packed.products import Coded
from strata.model.config import ModelConfig

ZERO = np.float32(0.0)
MOST_ROWS = 8
"""Rows of a segment whose w fits into a block's shared memory."""
ROWS_BESIDE_MEMORY = 4
"""Rows that go together where the memory lies in shared memory too: three blocks fit on a multiprocessor."""
MULTIPROCESSORS = 132
"""Of a large card: up to this many heads each has one for itself."""


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Geometry and variant of the kernel.

    `n_at_once` heads are on a multiprocessor: one, or two, with their memories in registers, or three in shared memory.
    """

    size: int
    n_k_heads: int
    n_v_heads: int
    n_taps: int
    keep: bool
    n_at_once: int

    @property
    def in_shared(self) -> bool:
        return self.n_at_once == 3

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
    def last_at(self) -> int:
        """Words before the block's ticket."""
        return self.gates_at + 2 * self.together

    @property
    def memory_at(self) -> int:
        """Bytes before the head's memory, where that lies in shared memory."""
        return 4 * (self.last_at + 4)

    @property
    def shared_bytes(self) -> int:
        return self.memory_at + (shared_bytes(self.size) if self.in_shared else 0)


@cache
def window_scan_kernel(shape: WindowShape, target: Target):
    """Return the kernel; grid (v_heads, segments), shape.n_threads threads.

    kernel(u, alpha, logits, tail, conv, bias, decay, memory, first, count, slot, read_scale, eps, z, weight, counters, w, g, beta,
    gated, codes, turned, scales, sums).
    """
    size, n_k, n_v, n_threads, keep, together = shape.size, shape.n_k_heads, shape.n_v_heads, shape.n_threads, shape.keep, shape.together
    vector, token, n_warps, per_thread, last_at = shape.vector, shape.token, n_threads // 32, size // 32, shape.last_at
    gate_shift = per_thread.bit_length() - 1
    n_taps_held, n_past = per_thread * shape.n_taps, per_thread * (shape.n_taps - 1)
    held = in_shared(size, shape.memory_at) if shape.in_shared else in_registers(size, keep)
    begin_memory, n_state = held.begin, held.n_state
    inputs = window_inputs(size, n_k, n_v, shape.n_taps, shape.pitch, keep)
    channel_of, fetch, recent, make, store_tail = inputs.channel_of, inputs.fetch, inputs.recent, inputs.make, inputs.store_tail
    (first_task, next_task), gates, read, finish = warp_tasks(n_warps), token_gates(shape), token_reader(shape, held), token_outputs(shape, target)
    memory_at = token_places(size, shape.pitch, n_k, n_v)[2]
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads, shape.n_at_once * (256 // n_threads))
    def run(
        u, alpha, logits, tail, conv, bias, decay, memory, first, count, slot, read_scale, eps, z, weight, counters, w, g, beta,
        gated, codes, turned, scales, sums,
    ):
        staged, words = cuda.shared.array(0, types.float32), cuda.shared.array(0, types.int32)
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
        home = memory_at(np.int64(place), h, lane, column)
        begin_memory(memory, np.int32(place * n_v + h), home, state, thread)
        t, kind = first_task(warp)
        channel = np.int32(channel_of(kind, h) + in_warp)
        if t < min(n, np.int32(together)):
            fetch(tail, conv, np.int32(begin + t), begin, place, channel, taps, past)
        own_bias, own_rate = bias[h], decay[h]
        opener = np.int32(n_warps - 1) - warp
        which, gated_t = np.int32(opener & (per_thread - 1)), np.int32(opener >> gate_shift)
        gated_place = 32 * which + in_warp
        factor = weight[np.uint64(gated_place)]
        held, held_channel, ticket, done = np.int32(3), channel, np.int32(0), np.int32(0)
        n_others = np.int32((n_v - 1 - h % n_k) // n_k)
        wait_before()
        while done < n:
            rows, row0 = min(np.int32(n - done), np.int32(together)), np.int32(begin + done)
            if done > 0:
                cuda.syncthreads()
                t, kind = first_task(warp)
                channel = np.int32(channel_of(kind, h) + in_warp)
            if t < rows:
                recent(u, np.int32(row0 + t), begin, channel, past, fresh)
                if done > 0:
                    fetch(tail, conv, np.int32(row0 + t), begin, place, channel, taps, past)
            is_there, z_value = True, ZERO
            if gated_t < rows:
                z_value = z[np.uint64((np.int64(row0 + gated_t) * n_v + h) * size + gated_place)]
            gates(alpha, logits, own_bias, own_rate, np.int32(row0 + in_warp), in_warp, h, rows, warp, staged, g, beta)
            while t < rows:
                row = np.int32(row0 + t)
                if not is_there:
                    recent(u, row, begin, channel, past, fresh)
                    fetch(tail, conv, row, begin, place, channel, taps, past)
                make(row, kind, h, channel, eps, in_warp, taps, past, fresh, values, staged, t * token + kind * vector, w)
                is_there = False
                if done + t == n - 1:
                    held, held_channel = kind, channel
                t, kind = next_task(t, kind)
                channel = np.int32(channel_of(kind, h) + in_warp)
            opening = sigmoid(z_value)
            cuda.syncthreads()
            # All warps have their rows of the tail.
            if keep and thread == 0 and done + rows == n:
                ticket = take_ticket(counters, np.int64(segment * n_k + h % n_k), n_others)
            for one in range(rows):
                read(staged, np.int32(one), lane, thread, column, state, products, read_scale, memory, home, done + one == n - 1)
            if keep and thread == 0 and done + rows == n:
                words[last_at] = ticket
            cuda.syncthreads()
            finish(staged, gated_t, rows, row0, h, gated_place, z_value, opening, z, factor, eps, in_warp, which, gated, codes, turned, scales, sums)
            done = np.int32(done + together)
        if keep and (held == 2 or (held < 2 and words[last_at] == n_others)):
            store_tail(tail, place, held_channel, past, fresh)

    return run


def heads_at_once(device: CudaDevice, n_blocks: int, keep: bool) -> int:
    """Return how many heads a multiprocessor should hold: before 9.0 one, as more would spill; three, with their memories, need bulk copies and
    the shared memory of 9.0 to 10.x."""
    if not device.target.dependent_launch or n_blocks <= MULTIPROCESSORS:
        return 1
    return 3 if keep and large_blocks_fit(device.card.capability) else 2


def launch_window_scan(
    device: CudaDevice, config: ModelConfig, window: WindowTables, keep: bool, u, alpha, logits, tail, conv, bias, decay, memory,
    read_scale, z, weight, counters, w, g, beta, gated, coded: Coded, programmatic: bool = False, n_at_once: int = 0,
) -> Launch:
    """gated [rows, v_heads * S] and its codes from a decode window's projections; with `keep` memory and tail move on.

    Segments have up to MOST_ROWS rows.  Without `keep` w, g and beta are filled for `scan.launch_commit`.
    `n_at_once` (0: as suits the card) changes no bit; a memory that is not kept lies in registers.
    """
    check(config)
    size = config.ssm_state
    require(size in (64, 128), f"ssm state of {size}", "the scan holds heads of 64 or 128 values in registers")
    require(window.n_rows <= MOST_ROWS, f"{window.n_rows} rows", f"a segment has {MOST_ROWS} at most", "use launch_prepare and launch_scan")
    n_v = config.n_ssm_v_heads
    n_at_once = n_at_once or heads_at_once(device, n_v * window.n_rows, keep)
    most = 3 if keep and device.target.bulk_copies else 2
    require(1 <= n_at_once <= most, f"{n_at_once} heads at once", f"1 to {most} fit; 3 where the memory is kept and the card has bulk copies")
    shape = WindowShape(size, config.n_ssm_qk_heads, n_v, config.conv_taps, keep, n_at_once)
    arguments = (
        u, alpha, logits, tail, conv, bias, decay, memory, window.first, window.count, window.segment_slot, np.float32(read_scale),
        np.float32(config.rms_epsilon), z, weight, counters, w, g, beta, gated, *arrays_of(coded),
    )
    grid = (shape.n_v_heads, window.n_segments)
    run = window_scan_kernel(shape, device.target)
    return Launch(device, run, Shape(grid, shape.n_threads, shape.shared_bytes), arguments, programmatic)
