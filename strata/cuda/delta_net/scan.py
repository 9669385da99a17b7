"""The gated delta net's recurrent scan: a window's rows advance each head's memory, token by token.

The order of host/gdn.py.  Eight threads hold four columns of a head's memory M [S, S] in registers: thread l of the eight is
lane l and has rows l, l + 8, l + 16, ...  Per token, k.M and q.M are chains in the lane and then the eight-lane tree by
exchanges; delta, update and read as on the host; entries below 2^-100 become +0.  k and q of the next token travel to shared
memory while this one is computed, v and the gates to registers.  The memory is fetched before the previous kernel has ended: no
other kernel of a window writes it, and what writes it between windows is waited for by a window's first kernel.

A block has one head, or one of its `n_parts` parts: columns never meet, so the split changes no bit.  blockIdx.y is a segment
of a layer (a replay does all layers at once); one without rows leaves at once.  The block also moves
its share of the convolution's tail behind the rows when the memory is kept.  With `finish` (whole heads, few rows) it norms,
gates and codes each token's output, which else a kernel of its own does.

Flat shapes: w, u [layers, row_capacity, channels]; g, beta [layers, row_capacity, v_heads]; memory [layers, slots, v_heads, S, S];
tail [layers, slots, taps - 1, channels]; first, slot, count int32 [segments]; out, z [rows, v_heads * S].
Does not know: convolution, projections.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.delta_net.gdn import check, output_gate
from strata.cuda.delta_net.scan_parts import COLUMNS, PAD, ZERO, column_helpers, memory_helpers, output_of_lane, tail_mover, token_places
from strata.cuda.machine.seam import Target, fma, kernel, launch_dependents, load_four_floats, mul, sub, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.memory.window_tables import WindowTables
from strata.cuda.packed.group_codes import arrays_of, group_coder
from strata.cuda.packed.products import Coded
from strata.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class ScanShape:
    """Geometry and variant of a scan kernel."""

    size: int
    n_k_heads: int
    n_v_heads: int
    n_taps: int
    n_parts: int
    keep: bool
    read: bool
    finish: bool

    @property
    def n_threads(self) -> int:
        return 8 * self.size // (COLUMNS * self.n_parts)

    @property
    def n_blocks(self) -> int:
        """Blocks of a segment of a layer."""
        return self.n_v_heads * self.n_parts

    @property
    def channels(self) -> int:
        return (2 * self.n_k_heads + self.n_v_heads) * self.size

    @property
    def pitch(self) -> int:
        """Floats between two lanes' parts of k or q in shared memory."""
        return self.size // 8 + PAD

    @property
    def n_staged(self) -> int:
        """Floats of shared memory for k and q of two tokens; a token's output follows."""
        return 4 * 8 * self.pitch

    @property
    def launched(self) -> tuple[int, int]:
        """Threads and bytes of shared memory of a block."""
        return self.n_threads, 4 * (self.n_staged + self.size)


@cache
def scan_kernel(shape: ScanShape, target: Target):
    """Return the kernel; grid (v_heads * n_parts, layers * segments), shape.n_threads threads.

    kernel(w, g, beta, u, memory, tail, first, count, slot, n_segments, n_slots, row_capacity, read_scale, out, z, weight, eps,
    gated, codes, turned, scales, sums); the last seven arrays are read and written with `finish` only.
    """
    size, n_parts, n_k_heads, n_v_heads = shape.size, shape.n_parts, shape.n_k_heads, shape.n_v_heads
    keep, read, finish, channels, n_threads = shape.keep, shape.read, shape.finish, shape.channels, shape.n_threads
    pitch, n_staged = shape.pitch, shape.n_staged
    vector, n_state, part_columns = 8 * pitch, COLUMNS * (size // 8), size // n_parts
    staged_at, channels_of, memory_at = token_places(size, pitch, n_k_heads, n_v_heads)
    n_loads = (size + n_threads - 1) // n_threads
    multiply, update = column_helpers(size)
    fetch, store = memory_helpers(size)
    move_tail, gated_value = tail_mover(shape), output_gate(size)
    code_group = group_coder(target)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads, 1 if finish else 512 // n_threads)
    def run(
        w, g, beta, u, memory, tail, first, count, slot, n_segments, n_slots, row_capacity, read_scale, out, z, weight, eps,
        gated, codes, turned, scales, sums,
    ):
        staged = cuda.shared.array(0, types.float32)
        state, products = cuda.local.array(n_state, np.float32), cuda.local.array(COLUMNS, np.float32)
        next_k, next_q = cuda.local.array(n_loads, np.float32), cuda.local.array(n_loads, np.float32)
        go_on()
        segment, layer = np.int32(cuda.blockIdx.y) % n_segments, np.int64(np.int32(cuda.blockIdx.y) // n_segments)
        n = count[segment]
        if n == 0:
            return
        thread = np.int32(cuda.threadIdx.x)
        lane, group = thread & 7, thread >> 3
        h, part = np.int32(cuda.blockIdx.x) // n_parts, np.int32(cuda.blockIdx.x) % n_parts
        column = part * part_columns + group * COLUMNS
        place_of_slot = layer * n_slots + slot[segment]
        home = memory_at(place_of_slot, h, lane, column)
        fetch(memory, home, state)
        wait_before()
        row = first_row = layer * row_capacity + first[segment]
        q_at, k_at, v_at = channels_of(h)
        v_at += column
        for m in range(n_loads):
            i = thread + m * n_threads
            if i < size:
                staged[staged_at(i)] = w[row * channels + k_at + i]
                if read:
                    staged[vector + staged_at(i)] = w[row * channels + q_at + i]
        v0, v1, v2, v3 = load_four_floats(w, 4 * (row * channels + v_at))
        decay, strength = g[row * n_v_heads + h], beta[row * n_v_heads + h]
        buffer = np.int32(0)
        for t in range(n):
            cuda.syncthreads()
            u0, u1, u2, u3, next_decay, next_strength, z_value = v0, v1, v2, v3, decay, strength, ZERO
            if t + 1 < n:
                after = row + 1
                for m in range(n_loads):
                    i = thread + m * n_threads
                    if i < size:
                        next_k[m] = w[after * channels + k_at + i]
                        if read:
                            next_q[m] = w[after * channels + q_at + i]
                u0, u1, u2, u3 = load_four_floats(w, 4 * (after * channels + v_at))
                next_decay, next_strength = g[after * n_v_heads + h], beta[after * n_v_heads + h]
            if finish and thread < size:
                z_value = z[(row * n_v_heads + h) * size + thread]
            at = buffer * 2 * vector + lane * pitch
            multiply(staged, at, state, products)
            minus = sub(ZERO, decay)
            d0 = mul(strength, fma(minus, products[0], v0))
            d1 = mul(strength, fma(minus, products[1], v1))
            d2 = mul(strength, fma(minus, products[2], v2))
            d3 = mul(strength, fma(minus, products[3], v3))
            update(staged, at, state, decay, d0, d1, d2, d3)
            if read:
                multiply(staged, at + vector, state, products)
                mine = output_of_lane(products, lane, read_scale)
                if lane < COLUMNS:
                    out[(row * n_v_heads + h) * size + column + lane] = mine
                    if finish:
                        staged[n_staged + column + lane] = mine
            if finish:
                cuda.syncthreads()
                if thread < size:
                    own = (row * n_v_heads + h) * size + thread
                    value = gated_value(staged, n_staged, z_value, weight, eps, thread & 31, thread >> 5)
                    gated[own] = value
                    code_group(value, thread & 31, own >> 5, codes, turned, scales, sums)
            buffer = np.int32(1 - buffer)
            if t + 1 < n:
                for m in range(n_loads):
                    i = thread + m * n_threads
                    if i < size:
                        staged[buffer * 2 * vector + staged_at(i)] = next_k[m]
                        if read:
                            staged[buffer * 2 * vector + vector + staged_at(i)] = next_q[m]
            v0, v1, v2, v3, decay, strength = u0, u1, u2, u3, next_decay, next_strength
            row += 1
        if keep:
            store(memory, home, state)
            move_tail(u, first_row, tail, place_of_slot, n, np.int32(cuda.blockIdx.x))

    return run


def _shape(config: ModelConfig, n_parts: int, keep: bool, read: bool, finish: bool) -> ScanShape:
    check(config)
    size = config.ssm_state
    require(size in (64, 128), f"ssm state of {size}", "the scan holds heads of 64 or 128 values in registers")
    return ScanShape(size, config.n_ssm_qk_heads, config.n_ssm_v_heads, config.conv_taps, n_parts, keep, read, finish)


def launch_scan(
    device: CudaDevice, config: ModelConfig, window: WindowTables, keep: bool, w, g, beta, u, memory, tail, n_slots: int, read_scale,
    out, z, weight, gated, coded: Coded, programmatic: bool = False,
) -> Launch:
    """Scan a window's rows into out [rows, v_heads * S], then norm, gate and code it; with `keep` memory and tail move on.

    For windows; chunks of many rows take chunk_scan.py.
    """
    shape = _shape(config, 1, keep, True, True)
    arguments = (
        w, g, beta, u, memory, tail, window.first, window.count, window.segment_slot, np.int32(window.n_segments), np.int32(n_slots),
        np.int32(0), np.float32(read_scale), out, z, weight, np.float32(config.rms_epsilon), gated, *arrays_of(coded),
    )
    grid = (shape.n_v_heads * shape.n_parts, window.n_segments)
    return Launch(device, scan_kernel(shape, device.target), Shape(grid, *shape.launched), arguments, programmatic)


def launch_commit(
    device: CudaDevice, config: ModelConfig, window: WindowTables, kept, w, g, beta, u, memory, tail, n_slots: int, n_layers: int,
    row_capacity: int, programmatic: bool = False,
) -> Launch:
    """Replay the first kept[s] rows of each segment, of all layers at once: memory and tail move behind them.

    kept int32 [segments], 0 where a segment keeps nothing; w, g, beta, u as the window's prepare and products left them.
    """
    shape = _shape(config, 1, True, False, False)
    nothing = g  # stands for arrays that a replay does not touch
    arguments = (
        w, g, beta, u, memory, tail, window.first, kept, window.segment_slot, np.int32(window.n_segments), np.int32(n_slots),
        np.int32(row_capacity), np.float32(0), *(nothing,) * 3, np.float32(0), *(nothing,) * 5,
    )
    grid = (shape.n_v_heads, n_layers * window.n_segments)
    return Launch(device, scan_kernel(shape, device.target), Shape(grid, *shape.launched), arguments, programmatic)
