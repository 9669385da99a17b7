"""Gated delta net on a card, around the scan: convolution, head norms, gates, output gate.

The operations and orders of host/gdn.py; the scan and its replay are in scan.py.  `launch_prepare` is one kernel: a warp has
one head of one row (q and k heads are divided by their length) or a row's gates.  Flat shapes: u, w [rows, channels] with
q heads, k heads, v heads; alpha, beta [rows, v_heads]; tail [slots, taps - 1, channels]; conv [channels, taps]; o, z
[rows, v_heads * S].  Does not know: projections, layers.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.delta_net.chunk_prepare import THREADS, WARPS, prepare_kernel, run_of
from strata.cuda.machine.on_cuda import exp, sigmoid, softplus
from strata.cuda.machine.seam import Target, add, fma, jit, kernel, launch_dependents, mul, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.machine.silus import sigmoids
from strata.cuda.machine.warps import scale_from_sum, sum_row
from strata.cuda.memory.window_tables import WindowTables
from strata.cuda.packed.group_codes import arrays_of, group_coder
from strata.cuda.packed.products import Coded
from strata.model.config import ModelConfig

ZERO = np.float32(0.0)


@jit
def decay_of(logit, bias, rate):
    """The factor by which a head's memory fades: exp(softplus(alpha + bias) * a)."""
    return exp(mul(softplus(add(logit, bias)), rate))


def head_gate(size: int):
    """Build `gated(o, at, opening, factor, eps, thread, which)`: value 32 * which + thread of a head whose values lie at o[at:].

    `opening` is sigmoid(z) of that value, `factor` the norm's weight.
    """
    per_thread = size // 32

    @jit
    def gated(o, at, opening, factor, eps, thread, which):
        total = ZERO
        for m in range(per_thread):
            x = o[np.uint64(at + 32 * m + thread)]
            total = fma(x, x, total)
        scale = scale_from_sum(sum_row(total), size, eps)
        return mul(mul(mul(o[np.uint64(at + 32 * which + thread)], scale), factor), opening)

    return gated


def output_gate(size: int):
    """Build `gated(o, at, z_value, weight, eps, thread, which)`: as `head_gate`, with z and the norm's weights of the head."""
    gate = head_gate(size)

    @jit
    def gated(o, at, z_value, weight, eps, thread, which):
        return gate(o, at, sigmoid(z_value), weight[32 * which + thread], eps, thread, which)

    return gated


@cache
def gate_norm_kernel(size: int, target: Target):
    """Return kernel(o, z, weight, eps, n_heads, out, codes, turned, scales, sums): a warp per head of a row, of n_heads in all."""
    per_thread, code_group, sigmoid_all = size // 32, group_coder(target), sigmoids(size // 32)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(o, z, weight, eps, n_heads, out, codes, turned, scales, sums):
        values, gates = cuda.local.array(per_thread, np.float32), cuda.local.array(per_thread, np.float32)
        openings = cuda.local.array(per_thread, np.float32)
        go_on()
        wait_before()
        thread = np.int32(cuda.threadIdx.x) & 31
        head = np.int64(cuda.blockIdx.x) * WARPS + (np.int32(cuda.threadIdx.x) >> 5)
        if head >= n_heads:
            return
        at, total = head * size + thread, ZERO
        for m in range(per_thread):
            values[m], gates[m] = o[at + 32 * m], z[at + 32 * m]
        for m in range(per_thread):
            total = fma(values[m], values[m], total)
        scale = scale_from_sum(sum_row(total), size, eps)
        sigmoid_all(gates, openings)
        for m in range(per_thread):
            value = mul(mul(mul(values[m], scale), weight[32 * m + thread]), openings[m])
            out[at + 32 * m] = value
            code_group(value, thread, head * per_thread + m, codes, turned, scales, sums)

    return run


def check(config: ModelConfig) -> None:
    """Raise UsageError where the kernels' tiling does not take a geometry."""
    size = config.ssm_state
    require(size % 32 == 0 and 32 <= size <= 256, f"ssm state of {size}", "heads of 32 n values up to 256 fit")


def launch_prepare(
    device: CudaDevice, config: ModelConfig, window: WindowTables, u, alpha, beta, tail, conv, bias, decay, w, out_g, out_beta,
    programmatic: bool = False,
) -> Launch:
    """w = silu(convolution of u), q and k heads divided by their length; out_g and out_beta [rows, v_heads] from their logits."""
    check(config)
    n_units = 2 * config.n_ssm_qk_heads + config.n_ssm_v_heads + 1
    n_run = run_of(window.n_rows)
    run = prepare_kernel(config.ssm_state, config.n_ssm_qk_heads, config.n_ssm_v_heads, config.conv_taps, n_run, device.target)
    arguments = (
        u, alpha, beta, tail, conv, bias, decay, np.float32(config.rms_epsilon),
        window.segment_of_row, window.first, window.segment_slot, np.int32(window.n_rows), w, out_g, out_beta,
    )
    grid = ((n_units + WARPS - 1) // WARPS, (window.n_rows + n_run - 1) // n_run)
    return Launch(device, run, Shape(grid, THREADS), arguments, programmatic)


def launch_gate_norm(
    device: CudaDevice, config: ModelConfig, o, z, weight, n_rows: int, out, coded: Coded, programmatic: bool = False
) -> Launch:
    """out = rms(o_h) * weight * sigmoid(z_h) per head [rows, v_heads * S], and its codes."""
    check(config)
    n_heads = n_rows * config.n_ssm_v_heads
    arguments = (o, z, weight, np.float32(config.rms_epsilon), np.int32(n_heads), out, *arrays_of(coded))
    shape = Shape(((n_heads + WARPS - 1) // WARPS, 1), THREADS)
    return Launch(device, gate_norm_kernel(config.ssm_state, device.target), shape, arguments, programmatic)
