"""The gated delta net's recurrent scan for prompt chunks: many tokens of a segment, one after the other.

The operations and orders of host/gdn.py, the same as in scan.py; here the memory is spread thinner.  Eight threads hold one column
of a head's memory M [S, S] in registers: thread l of the eight is lane l and has rows l, l + 8, l + 16, ...  A block has 16 columns
of each of `n_held` v heads that share a k head: one read of k and q from shared memory serves them all.  One pass over a thread's
rows updates M, a second one goes on with two chains, q.M of this token and k.M of the next one: nothing of M changes in between.
Only the sum of k.M is waited for by the next token; the lanes of q.M are summed for two tokens at once, in the same tree.  k, q, v and the gates of following tokens travel to shared memory two batches ahead, and to
registers before the sum that the next token begins with.

Bounds at 48 heads of 128 x 128, three of which share a k head, on 132 multiprocessors: 128 blocks, a warp on each scheduler; per
token and thread 240 operations on M (that an entry is to become +0 is rare and looked for with one comparison each) and about
105 others: 0.4 ms for 2,048 tokens where issue is the bound; latencies that a lone warp shows, counted from the machine code, make
it 0.55 ms.  With n_held = 1 three blocks are on each multiprocessor: 3 x 145 instructions and three times the reads of shared memory.

Flat shapes as in scan.py.  Does not know: convolution, projections, the output gate.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.delta_net.chunk_steps import BATCH, COLUMNS, N_EXTRAS, token_steps
from strata.cuda.delta_net.gdn import check, launch_gate_norm
from strata.cuda.delta_net.scan import launch_scan
from strata.cuda.delta_net.scan_parts import PAD, tail_mover, token_places
from strata.cuda.machine.addresses import copier, global_address, shared_address
from strata.cuda.machine.seam import Target, copies, jit, kernel, launch_dependents, mul, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.memory.window_tables import WindowTables
from strata.cuda.packed.products import Coded
from strata.model.config import ModelConfig

THREADS = 128
SLOTS = 3
"""Batches in shared memory: this one, the next one, one on its way."""
MOST_HELD = 3
"""Heads whose columns a thread has registers for."""
MOST_WINDOW_ROWS = 64
"""Up to this many rows the window's scan is taken: one launch that finishes its output."""


@dataclass(frozen=True, slots=True)
class ChunkScanShape:
    """Geometry of a chunk scan; `keep`: the memory and the convolution's tail move on; `n_held`: v heads of a block."""

    size: int
    n_k_heads: int
    n_v_heads: int
    n_taps: int
    keep: bool
    n_held: int

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
    def n_blocks(self) -> int:
        """Blocks of a segment."""
        return self.n_v_heads // self.n_held * self.n_parts

    @property
    def blocks_at_once(self) -> int:
        """Blocks that a multiprocessor should hold: bounds the registers."""
        return 3 if self.n_held == 1 else 1

    @property
    def token_bytes(self) -> int:
        return 16 * -(-(2 * 8 * self.pitch + N_EXTRAS * self.n_held) // 4)

    @property
    def shared_bytes(self) -> int:
        return SLOTS * BATCH * self.token_bytes


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


def _batch_fetcher(shape: ChunkScanShape, staged_at, target: Target):
    """Build `fetch(slot, thread, left, k_from, q_from, extra_from, extra_step)`: the next BATCH tokens, of which `left` are there."""
    copy, copy_one = _batch_copier(shape.token_bytes, 4 * shape.channels, target), copier(4, 0, 0, target)
    size, token_bytes, vector_bytes = shape.size, shape.token_bytes, 4 * 8 * shape.pitch
    n_extras = N_EXTRAS * shape.n_held

    @jit
    def fetch(slot, thread, left, k_from, q_from, extra_from, extra_step):
        own = 4 * staged_at(thread)
        if thread < size:
            copy(slot + own, k_from, left)
            copy(slot + (own + vector_bytes), q_from, left)
        if thread < n_extras:
            to, source = slot + (2 * vector_bytes + 4 * thread), extra_from
            for _ in range(min(np.int32(BATCH), left)):
                copy_one(to, source)
                to, source = to + token_bytes, source + extra_step

    return fetch


def _extras(shape: ChunkScanShape, channels_of):
    """Build `extras_of(...)`: where the thread's value beside k and q lies for the first token, and its step from token to token, in bytes."""
    n_k_heads, n_v_heads, channels = shape.n_k_heads, shape.n_v_heads, shape.channels

    @jit
    def extras_of(w, g, beta, row, h, part, thread):
        j, i = thread // N_EXTRAS, thread % N_EXTRAS
        head = h + n_k_heads * j
        if i < COLUMNS:
            return global_address(w) + 4 * (row * channels + channels_of(head)[2] + part * COLUMNS + i), np.int64(4 * channels)
        gate = global_address(g) if i == COLUMNS else global_address(beta)
        return gate + 4 * (row * n_v_heads + head), np.int64(4 * n_v_heads)

    return extras_of


def _memories(shape: ChunkScanShape):
    """Build `fetch_memory` and `store_memory(memory, home, state)`: a thread's columns of all its heads."""
    rows, size, n_held, head_columns = shape.size // 8, shape.size, shape.n_held, shape.n_k_heads * shape.size * shape.size

    @jit
    def fetch_memory(memory, home, state):
        for j in range(n_held):
            for i in range(rows):
                state[rows * j + i] = memory[np.uint64(home + j * head_columns + 8 * i * size)]

    @jit
    def store_memory(memory, home, state):
        for j in range(n_held):
            for i in range(rows):
                memory[np.uint64(home + j * head_columns + 8 * i * size)] = state[rows * j + i]

    return fetch_memory, store_memory


@cache
def chunk_scan_kernel(shape: ChunkScanShape, target: Target):
    """Return the kernel; grid (shape.n_blocks, segments), THREADS threads.

    kernel(w, g, beta, u, memory, tail, first, count, slot, read_scale, out).
    """
    size, n_parts, n_k_heads, n_v_heads, channels, keep, n_held = (
        shape.size, shape.n_parts, shape.n_k_heads, shape.n_v_heads, shape.channels, shape.keep, shape.n_held
    )
    rows, pitch, token_bytes, vector_bytes = size // 8, shape.pitch, shape.token_bytes, 4 * 8 * shape.pitch
    slot_bytes, batch_step, out_step, head_step = BATCH * token_bytes, 4 * BATCH * channels, n_v_heads * size, n_k_heads * size
    n_state, n_sums, n_gates = n_held * rows, 2 * n_held, 3 * n_held
    steps, (fetch_memory, store_memory) = token_steps(size, pitch, n_held), _memories(shape)
    staged_at, channels_of, memory_at = token_places(size, pitch, n_k_heads, n_v_heads)
    fetch, extras_of, move_tail = _batch_fetcher(shape, staged_at, target), _extras(shape, channels_of), tail_mover(shape)
    load, load_gates, first_sums, step, outputs = steps.load, steps.load_gates, steps.first, steps.step, steps.outputs
    done = copies(target, 0)
    commit, wait_all = done.commit, done.wait
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS, shape.blocks_at_once)
    def run(w, g, beta, u, memory, tail, first, count, slot, read_scale, out):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        state, q = cuda.local.array(n_state, np.float32), cuda.local.array(rows, np.float32)
        k, k_next = cuda.local.array(rows, np.float32), cuda.local.array(rows, np.float32)
        sums, gates, r = cuda.local.array(n_sums, np.float32), cuda.local.array(n_gates, np.float32), cuda.local.array(n_held, np.float32)
        wait_before()
        segment = np.int32(cuda.blockIdx.y)
        n = count[segment]
        if n == 0:
            return
        thread = np.int32(cuda.threadIdx.x)
        lane, group = thread & 7, thread >> 3
        h, part = np.int32(cuda.blockIdx.x) // n_parts, np.int32(cuda.blockIdx.x) % n_parts
        column, row, place = part * COLUMNS + group, np.int64(first[segment]), np.int64(slot[segment])
        home = memory_at(place, h, lane, column)
        q_at, k_at, _ = channels_of(h)
        inputs = global_address(w) + 4 * row * channels
        k_from, q_from = inputs + 4 * (k_at + thread), inputs + 4 * (q_at + thread)
        extra_from, extra_step = extras_of(w, g, beta, row, h, part, thread)
        here, after, coming = shared + 0, shared + slot_bytes, shared + 2 * slot_bytes
        fetch(here, thread, n, k_from, q_from, extra_from, extra_step)
        k_from, q_from, extra_from = k_from + batch_step, q_from + batch_step, extra_from + BATCH * extra_step
        fetch(after, thread, np.int32(n - BATCH), k_from, q_from, extra_from, extra_step)
        commit()
        fetch_memory(memory, home, state)
        wait_all()
        cuda.syncthreads()
        lane_at = 4 * pitch * lane
        to = (row * n_v_heads + h) * size + column
        load(here + lane_at, k)
        load(here + (lane_at + token_bytes), k_next)
        load(here + (lane_at + vector_bytes), q)
        load_gates(here, group, gates)
        first_sums(k, state, r)
        for begin in range(0, n, BATCH):
            wait_all()
            cuda.syncthreads()
            k_from, q_from, extra_from = k_from + batch_step, q_from + batch_step, extra_from + BATCH * extra_step
            left = np.int32(n - begin)
            fetch(coming, thread, np.int32(left - 2 * BATCH), k_from, q_from, extra_from, extra_step)
            commit()
            for pair in range(0, min(left, np.int32(BATCH)) - 1, 2):
                at = here + pair * token_bytes
                two_on, three_on = at + 2 * token_bytes, at + 3 * token_bytes
                if pair + 2 == BATCH:
                    two_on, three_on = after + 0, after + token_bytes
                step(at + token_bytes, two_on, lane_at, group, k, k_next, q, state, gates, r, sums, 0)
                step(two_on, three_on, lane_at, group, k_next, k, q, state, gates, r, sums, 1)
                outputs(sums, lane)
                if lane & 3 == 0:
                    for j in range(n_held):
                        out[np.uint64(to + (lane >> 2) * out_step + j * head_step)] = mul(sums[j], read_scale)
                to += 2 * out_step
            if left < BATCH and left & 1:
                at = here + (left - 1) * token_bytes
                step(at + token_bytes, at + token_bytes, lane_at, group, k, k_next, q, state, gates, r, sums, 0)
                outputs(sums, lane)
                if lane == 0:
                    for j in range(n_held):
                        out[np.uint64(to + j * head_step)] = mul(sums[j], read_scale)
            here, after, coming = after, coming, here
        if keep:
            store_memory(memory, home, state)
            move_tail(u, row, tail, place, n, np.int32(cuda.blockIdx.x))
        go_on()

    return run


def heads_held(config: ModelConfig) -> int:
    """Return how many v heads of a k head a thread should have columns of."""
    n_sharing, left = divmod(config.n_ssm_v_heads, config.n_ssm_qk_heads)
    return n_sharing if left == 0 and n_sharing <= MOST_HELD else 1


def launch_any_scan(
    device: CudaDevice, config: ModelConfig, window: WindowTables, keep: bool, w, g, beta, u, memory, tail, n_slots: int, read_scale,
    out, z, weight, gated, coded: Coded, programmatic: bool = False, n_held: int = 0,
) -> tuple[Launch, ...]:
    """Scan a window's or a chunk's rows into out [rows, v_heads * S], then norm, gate and code it; with `keep` memory and tail move on.

    `n_held` (0: as suits the geometry; else 1 or all v heads of a k head) changes no bit of a chunk.
    """
    if window.n_rows <= MOST_WINDOW_ROWS:
        rest = (n_slots, read_scale, out, z, weight, gated, coded, programmatic)
        return (launch_scan(device, config, window, keep, w, g, beta, u, memory, tail, *rest),)
    check(config)
    require(config.ssm_state in (64, 128), f"ssm state of {config.ssm_state}", "the scan holds heads of 64 or 128 values in registers")
    shape = ChunkScanShape(config.ssm_state, config.n_ssm_qk_heads, config.n_ssm_v_heads, config.conv_taps, keep, n_held or heads_held(config))
    arguments = (w, g, beta, u, memory, tail, window.first, window.count, window.segment_slot, np.float32(read_scale), out)
    grid = (shape.n_blocks, window.n_segments)
    kernel_of = chunk_scan_kernel(shape, device.target)
    scanned = Launch(device, kernel_of, Shape(grid, THREADS, shape.shared_bytes), arguments, programmatic)
    return scanned, launch_gate_norm(device, config, out, z, weight, window.n_rows, gated, coded, programmatic)
