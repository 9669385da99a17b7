"""The n-gram layer on a card: hashing, gate, dilated convolution, and what is kept of a window.

The operations and orders of host/ngrams.py.  Table rows are dequantised by lookup.py.  Flat shapes: R [rows, C, H]; key, gated,
conv_rows [rows, C * H]; value [rows, H]; tail [slots, history, C * H]; history int32 [slots, 2], latest first, -1 where there is
none; table_rows int64 [rows, heads].  Does not know: projections.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.addresses import shared_address
from strata.cuda.machine.chains import products, squares
from strata.cuda.machine.on_cuda import root_gate, silu
from strata.cuda.machine.seam import Target, add, div, fma, jit, kernel, launch_dependents, mul, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.machine.warps import scale_from_sum, sum_eight, sum_row
from strata.cuda.memory.window_tables import WindowTables
from strata.model.config import ModelConfig

ZERO = np.float32(0.0)
THREADS, GATE_THREADS = 256, 512
LARGEST_HIDDEN = 5600
"""Key and query of one stream must fit into a block's shared memory."""


@cache
def hash_kernel(n_heads: int, n_bigrams: int, target: Target):
    """Return kernel(tokens, n_rows, segment_of_row, first, slot, history, end_token, multipliers, sizes, offsets, table_rows)."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(tokens, n_rows, segment_of_row, first, slot, history, end_token, multipliers, sizes, offsets, table_rows):
        go_on()
        wait_before()
        i = np.int32(cuda.grid(1))
        if i >= n_rows * n_heads:
            return
        row, h = i // n_heads, i % n_heads
        segment = segment_of_row[row]
        in_window = row - first[segment]
        past = 2 * slot[segment]
        one = tokens[row - 1] if in_window >= 1 else history[past]
        two = tokens[row - 2] if in_window >= 2 else history[past + 1 - in_window]
        cut = one < 0 or one == end_token
        first_back = end_token if cut else one
        second_back = end_token if cut or two < 0 or two == end_token else two
        value = (np.uint64(tokens[row]) * multipliers[0]) ^ (np.uint64(first_back) * multipliers[1])
        if h >= n_bigrams:
            value = value ^ (np.uint64(second_back) * multipliers[2])
        table_rows[i] = np.int64(value % sizes[h] + offsets[h])

    return run


@cache
def gate_kernel(hidden: int, n_streams: int, target: Target):
    """Return the kernel; grid (C, rows), GATE_THREADS threads: a block has one stream of one row.

    kernel(residual, key, value, norm_key, norm_query, norm_conv, eps, root_hidden, gated, conv_rows).
    """
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)
    chain, dot_chain = squares(hidden), products(hidden)

    @jit
    def norm_scale(values, eps, thread):
        """The RMS scale of a vector in shared memory, by one warp."""
        return scale_from_sum(sum_row(chain(shared_address(values), thread)), hidden, eps)

    @kernel(GATE_THREADS)
    def run(residual, key, value, norm_key, norm_query, norm_conv, eps, root_hidden, gated, conv_rows):
        a = cuda.shared.array(hidden, np.float32)
        b = cuda.shared.array(hidden, np.float32)
        found = cuda.shared.array(3, np.float32)
        go_on()
        wait_before()
        c, row, thread = np.int32(cuda.blockIdx.x), np.int32(cuda.blockIdx.y), np.int32(cuda.threadIdx.x)
        base, norm_at = (np.int64(row) * n_streams + c) * hidden, c * hidden
        for i in range(thread, hidden, GATE_THREADS):
            a[i], b[i] = key[base + i], residual[base + i]
        cuda.syncthreads()
        if thread < 32:
            scale = norm_scale(a, eps, thread)
            if thread == 0:
                found[0] = scale
        elif thread < 64:
            scale = norm_scale(b, eps, thread - 32)
            if thread == 32:
                found[1] = scale
        cuda.syncthreads()
        scale_key, scale_query = found[0], found[1]
        for i in range(thread, hidden, GATE_THREADS):
            a[i] = mul(mul(a[i], scale_key), norm_key[norm_at + i])
            b[i] = mul(mul(b[i], scale_query), norm_query[norm_at + i])
        cuda.syncthreads()
        if thread < 32:
            # Four copies of the eight lanes: whole warps exchange.
            strength = root_gate(div(sum_eight(dot_chain(shared_address(a), shared_address(b), thread & 7)), root_hidden))
            if thread == 0:
                found[2] = strength
        cuda.syncthreads()
        strength = found[2]
        for i in range(thread, hidden, GATE_THREADS):
            x = mul(value[np.int64(row) * hidden + i], strength)
            gated[base + i], a[i] = x, x
        cuda.syncthreads()
        if thread < 32:
            scale = norm_scale(a, eps, thread)
            if thread == 0:
                found[0] = scale
        cuda.syncthreads()
        scale = found[0]
        for i in range(thread, hidden, GATE_THREADS):
            conv_rows[base + i] = mul(mul(a[i], scale), norm_conv[norm_at + i])

    return run


@cache
def convolve_kernel(width: int, n_taps: int, dilation: int, target: Target):
    """Return kernel(residual, gated, conv_rows, tail, conv, segment_of_row, first, slot); grid (C * H / THREADS, rows)."""
    depth = (n_taps - 1) * dilation
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(residual, gated, conv_rows, tail, conv, segment_of_row, first, slot):
        go_on()
        wait_before()
        i, row = np.int32(cuda.grid(1)), np.int32(cuda.blockIdx.y)
        if i >= width:
            return
        segment = segment_of_row[row]
        begin, place = first[segment], np.int64(slot[segment]) * depth
        total = ZERO
        for tap in range(n_taps):
            source = row - (n_taps - 1 - tap) * dilation
            if source >= begin:
                value = conv_rows[np.int64(source) * width + i]
            else:
                value = tail[(place + source - begin + depth) * width + i]
            weight = conv[i * n_taps + tap]
            total = mul(weight, value) if tap == 0 else fma(weight, value, total)
        at = np.int64(row) * width + i
        residual[at] = add(add(residual[at], gated[at]), silu(total))

    return run


@cache
def keep_kernel(width: int, depth: int, target: Target):
    """Return kernel(conv_rows, tokens, tail, history, first, slot, kept); grid (C * H / THREADS, segments)."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(conv_rows, tokens, tail, history, first, slot, kept):
        go_on()
        wait_before()
        i, segment = np.int32(cuda.grid(1)), np.int32(cuda.blockIdx.y)
        n, begin, place = kept[segment], np.int64(first[segment]), np.int64(slot[segment])
        if n == 0:
            return
        if i < width:
            for t in range(depth):
                source = t + n
                if source < depth:
                    tail[(place * depth + t) * width + i] = tail[(place * depth + source) * width + i]
                else:
                    tail[(place * depth + t) * width + i] = conv_rows[(begin + source - depth) * width + i]
        if i == 0:
            history[2 * place + 1] = tokens[begin + n - 2] if n >= 2 else history[2 * place]
            history[2 * place] = tokens[begin + n - 1]

    return run


def _wide_grid(config: ModelConfig, n: int) -> tuple[int, int]:
    return (config.residual_width + THREADS - 1) // THREADS, n


def launch_hash(
    device: CudaDevice, config: ModelConfig, window: WindowTables, history, multipliers, sizes, offsets, table_rows,
    programmatic: bool = False,
) -> Launch:
    """table_rows int64 [rows, heads]: the row of the n-gram table for each head; multipliers, sizes, offsets uint64."""
    n_heads = config.n_ple_heads
    run = hash_kernel(n_heads, config.ple_heads_per_ngram, device.target)
    arguments = (
        window.tokens, np.int32(window.n_rows), window.segment_of_row, window.first, window.segment_slot, history,
        np.int32(config.ple_eos_token_id), multipliers, sizes, offsets, table_rows,
    )
    return Launch(device, run, Shape(((window.n_rows * n_heads + THREADS - 1) // THREADS, 1), THREADS), arguments, programmatic)


def launch_gate(
    device: CudaDevice, config: ModelConfig, n_rows: int, residual, key, value, norm_key, norm_query, norm_conv, gated, conv_rows,
    programmatic: bool = False,
) -> Launch:
    """gated [rows, C * H] = value * gate per stream; conv_rows = rms(gated) * norm_conv."""
    require(config.hidden % 32 == 0 and config.hidden <= LARGEST_HIDDEN, f"hidden={config.hidden}", f"streams up to {LARGEST_HIDDEN} fit")
    arguments = (
        residual, key, value, norm_key, norm_query, norm_conv, np.float32(config.rms_epsilon), np.sqrt(np.float32(config.hidden)),
        gated, conv_rows,
    )
    run = gate_kernel(config.hidden, config.n_streams, device.target)
    return Launch(device, run, Shape((config.n_streams, n_rows), GATE_THREADS), arguments, programmatic)


def launch_convolve_add(
    device: CudaDevice, config: ModelConfig, window: WindowTables, residual, gated, conv_rows, tail, conv, programmatic: bool = False
) -> Launch:
    """In place: R = (R + gated) + silu(dilated convolution of conv_rows), conv float32 [C * H, taps], oldest first."""
    run = convolve_kernel(config.residual_width, config.ple_conv_taps, config.ple_dilation, device.target)
    arguments = (residual, gated, conv_rows, tail, conv, window.segment_of_row, window.first, window.segment_slot)
    return Launch(device, run, Shape(_wide_grid(config, window.n_rows), THREADS), arguments, programmatic)


def launch_keep(
    device: CudaDevice, config: ModelConfig, window: WindowTables, kept, conv_rows, tail, history, programmatic: bool = False
) -> Launch:
    """Move tail and token history behind the first kept[s] rows of each segment, kept int32 [segments]."""
    run = keep_kernel(config.residual_width, config.ple_history, device.target)
    arguments = (conv_rows, window.tokens, tail, history, window.first, window.segment_slot, kept)
    return Launch(device, run, Shape(_wide_grid(config, window.n_segments), THREADS), arguments, programmatic)
