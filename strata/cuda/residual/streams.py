"""Hyper-connections on a card: the residual streams' write, norm, low-rank gate and mix.

The operations and orders of host/streams.py; norms use 32 lanes, one warp per stream.  Flat shapes: residual [rows, C, H];
normed, gate [rows, C * H]; y, mixed [rows, H]; inject [rows, C]; low [rows, rank].

    launch_write_normalise    optionally R[c] += y * 2 sigmoid(inject[c] / C), then optionally one RMS norm per stream: a block
                              has one stream of one row.  y is an array, or the experts' outputs combined on the way, which a
                              block of each stream then reads
    launch_low_rank_gate      in place: silu(low / C)
    launch_mix                mixed from normed and up . low, and its codes

Does not know: products, what the blocks compute.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.experts.combine import Combined, combiner_of_four
from strata.cuda.machine.addresses import shared_address
from strata.cuda.machine.chains import squares
from strata.cuda.machine.on_cuda import sigmoid, silu
from strata.cuda.machine.posting import read_past
from strata.cuda.machine.seam import Target, div, fma, jit, kernel, launch_dependents, load_four_floats, mul, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.machine.stores import store_four_floats
from strata.cuda.machine.warps import scale_from_sum, sum_row
from strata.cuda.packed.group_codes import arrays_of, group_coder
from strata.cuda.packed.products import Coded
from strata.model.config import ModelConfig

ZERO, TWO = np.float32(0.0), np.float32(2.0)
MOST_STREAM_THREADS, ROW_THREADS = 640, 256
LARGEST_HIDDEN = 12000
"""A stream of one row must fit into a block's shared memory."""
KNOWN_EARLY = True
"""Whether a write of experts reads what the router gave before the previous kernel has ended, where it may."""
NO_BLOCK, PLAIN, EXPERTS = 0, 1, 2
"""What a write adds: nothing, an array, or the combined experts."""


def threads_of(hidden: int) -> int:
    """Return the threads of a stream's block: each takes four neighbouring values at a time."""
    return min(MOST_STREAM_THREADS, (hidden + 127) // 128 * 32)


def _due(hidden: int, source: int, n_used: int):
    """Build `learn(...)`, as in combine.py, and `fetch(y, entries, factors, shared, shared_gate, row, i)`: four values of what is due."""
    learn, combined = combiner_of_four(hidden, n_used)

    @jit
    def learn_nothing(entry_of, weights, shared_gate, row, entries, factors):
        return ZERO

    @jit
    def nothing(y, entries, factors, shared, shared_gate, row, i):
        return ZERO, ZERO, ZERO, ZERO

    @jit
    def plain(y, entries, factors, shared, shared_gate, row, i):
        return load_four_floats(y, 4 * (np.int64(row) * hidden + i))

    return {NO_BLOCK: (learn_nothing, nothing), PLAIN: (learn_nothing, plain), EXPERTS: (learn, combined)}[source]


@cache
def stream_kernel(hidden: int, n_streams: int, source: int, n_used: int, normalises: bool, is_chosen: bool, is_known: bool, target: Target):
    """Return the kernel of a stream's write and norm; grid (C, rows), threads_of(hidden) threads.

    With `is_known` inject and what the router gave are read before the previous kernel has ended: only its outputs are waited for.

    kernel(residual, y, inject, entry_of, weights, shared, shared_gate, chosen, norm, eps, normed): `y` holds the block's
    rows, or the entries' rows with entry_of, weights, shared and shared_gate; block row r reads residual row chosen[r].
    """
    (learn, fetch), chain = _due(hidden, source, n_used), squares(hidden)
    n_threads = threads_of(hidden)
    step = 4 * n_threads
    count, n_own = np.float32(n_streams), (hidden + step - 1) // step
    n_values = 4 * n_own
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @jit
    def gate_of(logit):
        return mul(TWO, sigmoid(div(logit, count)))

    @kernel(n_threads)
    def run(residual, y, inject, entry_of, weights, shared, shared_gate, chosen, norm, eps, normed):
        values = cuda.shared.array(0, types.float32)
        factors, own = cuda.local.array(n_values, np.float32), cuda.local.array(n_values, np.float32)
        due = cuda.local.array(n_values, np.float32)
        entries, shares = cuda.local.array(n_used, np.int32), cuda.local.array(n_used, np.float32)
        inject_gate = logit = shared_part = ZERO
        go_on()
        thread = np.int32(cuda.threadIdx.x)
        c, row = np.int32(cuda.blockIdx.x), np.int32(cuda.blockIdx.y)
        if normalises:
            for m in range(n_own):
                i, v = 4 * thread + m * step, 4 * m
                if i < hidden:
                    factors[v], factors[v + 1], factors[v + 2], factors[v + 3] = load_four_floats(norm, 4 * np.int64(c * hidden + i))
        if is_known:
            inject_gate = gate_of(read_past(inject, np.int64(row * n_streams + c)))
            shared_part = learn(entry_of, weights, shared_gate, row, entries, shares)
        wait_before()
        source_row = chosen[row] if is_chosen else row
        base = (np.int64(source_row) * n_streams + c) * hidden
        if not is_known:
            logit = inject[row * n_streams + c] if source != NO_BLOCK else ZERO
            shared_part = learn(entry_of, weights, shared_gate, row, entries, shares)
        # All loads come before the gate and the first store, which they would else wait for: the compiler must take all for one array's.
        for m in range(n_own):
            i, v = 4 * thread + m * step, 4 * m
            if i < hidden:
                own[v], own[v + 1], own[v + 2], own[v + 3] = load_four_floats(residual, 4 * (base + i))
                due[v], due[v + 1], due[v + 2], due[v + 3] = fetch(y, entries, shares, shared, shared_part, row, i)
        if not is_known and source != NO_BLOCK:
            inject_gate = gate_of(logit)
        for m in range(n_own):
            i, v = 4 * thread + m * step, 4 * m
            if i < hidden:
                if source != NO_BLOCK:
                    for k in range(v, v + 4):
                        own[k] = fma(due[k], inject_gate, own[k])
                if normalises:
                    store_four_floats(values, 4 * np.int64(i), own[v], own[v + 1], own[v + 2], own[v + 3])
                if source != NO_BLOCK:
                    store_four_floats(residual, 4 * (base + i), own[v], own[v + 1], own[v + 2], own[v + 3])
        if normalises:
            cuda.syncthreads()
            if thread < 32:
                scale = scale_from_sum(sum_row(chain(shared_address(values), thread)), hidden, eps)
                if thread == 0:
                    values[hidden] = scale
            cuda.syncthreads()
            scale = values[hidden]
            out = (np.int64(row) * n_streams + c) * hidden
            for m in range(n_own):
                i, v = 4 * thread + m * step, 4 * m
                if i < hidden:
                    store_four_floats(
                        normed, 4 * (out + i), mul(mul(own[v], scale), factors[v]), mul(mul(own[v + 1], scale), factors[v + 1]),
                        mul(mul(own[v + 2], scale), factors[v + 2]), mul(mul(own[v + 3], scale), factors[v + 3]),
                    )

    return run


@cache
def low_rank_gate_kernel(target: Target):
    """Return kernel(low, n_values, n_streams): one thread per value."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(ROW_THREADS)
    def run(low, n_values, n_streams):
        go_on()
        wait_before()
        i = np.int32(cuda.grid(1))
        if i < n_values:
            low[i] = silu(div(low[i], n_streams))

    return run


@cache
def mix_kernel(hidden: int, n_streams: int, target: Target):
    """Return kernel(normed, gate, mixed, codes, turned, scales, sums); grid (H / ROW_THREADS, rows), a warp per group.

    Streams ascending, the first product rounded, then fused; all values are on their way before the first is used.
    """
    code_group = group_coder(target)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(ROW_THREADS)
    def run(normed, gate, mixed, codes, turned, scales, sums):
        values, logits = cuda.local.array(n_streams, np.float32), cuda.local.array(n_streams, np.float32)
        go_on()
        wait_before()
        i, row = np.int32(cuda.grid(1)), np.int32(cuda.blockIdx.y)
        if i >= hidden:
            return
        for c in range(n_streams):
            at = (np.int64(row) * n_streams + c) * hidden + i
            values[c], logits[c] = normed[at], gate[at]
        total = mul(values[0], sigmoid(logits[0]))
        for c in range(1, n_streams):
            total = fma(values[c], sigmoid(logits[c]), total)
        value, at = div(total, np.float32(n_streams)), np.int64(row) * hidden + i
        mixed[at] = value
        code_group(value, i & 31, at >> 5, codes, turned, scales, sums)

    return run


def launch_write_normalise(
    device: CudaDevice, config: ModelConfig, residual, n_rows: int, *, y=None, experts: Combined | None = None, inject=None,
    norm=None, normed=None, chosen=None, streams: tuple[int, int] | None = None, programmatic: bool = False,
) -> Launch:
    """Write a block's output (y, or the combined `experts`) into the streams and norm them; each half is optional.

    With `chosen` int32 [n_rows] the norm reads those rows of the residual and writes n_rows rows.  `streams` (count, values
    each) stands for the model's own: (1, C * H) norms a row as a whole.
    """
    n_streams, hidden = streams or (config.n_streams, config.hidden)
    require(hidden % 32 == 0 and hidden <= LARGEST_HIDDEN, f"hidden={hidden}", f"streams of 32 n values up to {LARGEST_HIDDEN} fit")
    require(y is None or experts is None, "y and experts", "a write adds one block's output")
    source = PLAIN if y is not None else EXPERTS if experts is not None else NO_BLOCK
    require(source == NO_BLOCK or inject is not None, "inject=None", "a write needs the inject values of its read")
    require(source == NO_BLOCK or chosen is None, "chosen rows", "only a norm can choose rows")
    require((norm is None) == (normed is None), "norm", "a norm needs its weight and its output")
    n_used = experts.n_used if experts is not None else 1
    is_known = KNOWN_EARLY and experts is not None and experts.is_known
    run = stream_kernel(hidden, n_streams, source, n_used, norm is not None, chosen is not None, is_known, device.target)
    outputs, entry_of, weights, shared, shared_gate = experts.arrays if experts is not None else (residual,) * 5
    block = y if y is not None else outputs
    # Arguments that a variant does not read are the residual itself.
    arguments = [block, inject, entry_of, weights, shared, shared_gate, chosen, norm]
    filled = [residual if argument is None else argument for argument in arguments]
    eps, output = np.float32(config.rms_epsilon), residual if normed is None else normed
    return Launch(device, run, Shape((n_streams, n_rows), threads_of(hidden), 4 * (hidden + 4)), (residual, *filled, eps, output), programmatic)


def launch_low_rank_gate(device: CudaDevice, low, n_rows: int, rank: int, n_streams: int, programmatic: bool = False) -> Launch:
    """In place: low [rows, rank] becomes silu(low / C)."""
    n_values = n_rows * rank
    shape = Shape(((n_values + ROW_THREADS - 1) // ROW_THREADS, 1), ROW_THREADS)
    return Launch(device, low_rank_gate_kernel(device.target), shape, (low, np.int32(n_values), np.float32(n_streams)), programmatic)


def launch_mix(
    device: CudaDevice, config: ModelConfig, normed, gate, n_rows: int, mixed, coded: Coded, programmatic: bool = False
) -> Launch:
    """mixed [rows, H] = (1/C) sum of normed * sigmoid(gate) over the streams, and its codes."""
    require(config.hidden % 32 == 0, f"hidden={config.hidden}", "codes come in groups of 32")
    shape = Shape(((config.hidden + ROW_THREADS - 1) // ROW_THREADS, n_rows), ROW_THREADS)
    run = mix_kernel(config.hidden, config.n_streams, device.target)
    return Launch(device, run, shape, (normed, gate, mixed, *arrays_of(coded)), programmatic)
