"""The first half of a stream read of one row in one kernel: the write of a block's output, the norm, and the products `down` and inject.

Every block adds y to the streams and norms them by itself, so that the products wait for no launch that does this alone: values of all
streams lie in its shared memory, where the products read them.  Their weights are on their way there before the previous kernel has
ended.  The residual stays as it is: y is due until a launch of `streams.py` writes it with what the next block gives.  A block stores
its own part of the normed values, for read_mix.  Values that are normed already are multiplied only.

Orders: write and norm as in streams.py, products as in host/float_products.py (element i in lane i mod 256, chains from +0 in ascending
order, the halving tree).  A thread holds four neighbouring values of every stream; a warp sums the squares of one stream.  In the
products thread t of PRODUCT_THREADS has lanes 2 t and 2 t + 1 of all outputs of the block, so that a value is read once for all of
them; then a warp has an output, and thread t its lanes t + 32 m: the tree's first three levels lie within a thread, five are exchanges.

Shapes, flat: values, norm, normed float32 [C * H]; y [H]; inject [C]; weights uint8 (raw bytes of [n_out, C * H]); low, injected float32
[n_out].  Does not know: more rows, `up`, what is written later.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.addresses import copier, global_address, shared_address, shared_two_floats, shared_word, store_shared_float
from strata.cuda.machine.chains import squares
from strata.cuda.machine.on_cuda import tree8
from strata.cuda.machine.seam import (
    Target, brain, copies, fma, from_bits, half, jit, kernel, launch_dependents, load_four_floats, mul, wait_for_dependency,
)
from strata.cuda.machine.shapes import require, shared_room
from strata.cuda.machine.stores import store_four_floats
from strata.cuda.machine.warps import scale_from_sum, sum_row
from strata.cuda.memory.placed import FloatMatrix
from strata.cuda.residual.streams import NO_BLOCK, PLAIN, gate_of
from strata.model.config import ModelConfig
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
NORMED = 3
"""What values are, beside streams that nothing or y is added to (NO_BLOCK, PLAIN): normed ones."""
SOURCES = (NO_BLOCK, PLAIN, NORMED)
"""Values that this kernel takes; of others there are launches for the streams and for the products."""
PRODUCT_THREADS = WIDE // 2
MOST_THREADS = 1024
OUTPUTS = 3
"""Outputs of a block: a large card has a multiprocessor for each block, which reads all values, of the 324 outputs of a stream read."""
MIN_BLOCKS = 2
"""Blocks for which a multiprocessor should have registers: those of the kernels ahead and behind want some too."""
AHEAD = 10
"""Steps of the products that a thread reads before it uses the first."""
LOW_HALF = np.uint32(0xFFFF)


@jit
def _two_brains(at):
    word = np.uint32(shared_word(at))
    return brain(word & LOW_HALF), brain(word >> 16)


@jit
def _two_halves(at):
    word = np.uint32(shared_word(at))
    return half(word & LOW_HALF), half(word >> 16)


WIDEN_TWO = {"BF16": (_two_brains, 2), "F16": (_two_halves, 2), "F32": (shared_two_floats, 4)}
"""By type name: `load(shared address) -> two floats`, and bytes per value."""


@dataclass(frozen=True, slots=True)
class DownShape:
    """Geometry and variant; shared memory holds the values, the weight rows, the lanes of all outputs, the streams' scales and gates."""

    hidden: int
    n_streams: int
    source: int
    type_name: str
    n_outputs: int

    @property
    def n_in(self) -> int:
        return self.n_streams * self.hidden

    @property
    def n_with_values(self) -> int:
        return self.hidden // 4

    @property
    def n_threads(self) -> int:
        return self.n_with_values + PRODUCT_THREADS

    @property
    def row_bytes(self) -> int:
        return self.n_in * WIDEN_TWO[self.type_name][1]

    @property
    def weights_at(self) -> int:
        return 4 * self.n_in

    @property
    def lanes_at(self) -> int:
        return self.weights_at + self.n_outputs * self.row_bytes

    @property
    def scales_at(self) -> int:
        return self.lanes_at + 4 * WIDE * self.n_outputs

    @property
    def gates_at(self) -> int:
        return self.scales_at + 4 * self.n_streams

    @property
    def shared_bytes(self) -> int:
        return self.gates_at + 4 * self.n_streams


def _values(shape: DownShape):
    """Build what threads with values do: `take(values, y, thread, floats, own)` and `normalise(norm, n_stored, thread, floats, own, normed)`.

    take: four values of each stream with what is due, to shared memory; all loads come before the first use.  normalise: the same once
    the scales are there.  The block meets in both, as in `_gates_and_scales`.
    """
    hidden, n_streams, is_due = shape.hidden, shape.n_streams, shape.source == PLAIN
    n_own, gates_at, scales_at = 4 * n_streams, shape.gates_at // 4, shape.scales_at // 4

    @jit
    def take(values, y, thread, floats, own):
        i = 4 * np.int64(thread)
        for c in range(n_streams):
            v = 4 * c
            own[v], own[v + 1], own[v + 2], own[v + 3] = load_four_floats(values, 4 * (c * hidden + i))
        if is_due:
            y0, y1, y2, y3 = load_four_floats(y, 4 * i)
            cuda.syncthreads()
            for c in range(n_streams):
                gate, v = floats[gates_at + c], 4 * c
                own[v], own[v + 1] = fma(y0, gate, own[v]), fma(y1, gate, own[v + 1])
                own[v + 2], own[v + 3] = fma(y2, gate, own[v + 2]), fma(y3, gate, own[v + 3])
        for c in range(n_streams):
            v = 4 * c
            store_four_floats(floats, 4 * (c * hidden + i), own[v], own[v + 1], own[v + 2], own[v + 3])

    @jit
    def normalise(norm, n_stored, thread, floats, own, normed):
        factors = cuda.local.array(n_own, np.float32)
        cuda.syncthreads()
        for c in range(n_streams):
            v = 4 * c
            factors[v], factors[v + 1], factors[v + 2], factors[v + 3] = load_four_floats(norm, 4 * np.int64(c * hidden + 4 * thread))
        cuda.syncthreads()
        first = np.int32(np.int32(cuda.blockIdx.x) * n_stored)
        for c in range(n_streams):
            v, scale, four = 4 * c, floats[scales_at + c], np.int32(c * (hidden // 4) + thread)
            a, b = mul(mul(own[v], scale), factors[v]), mul(mul(own[v + 1], scale), factors[v + 1])
            d, e = mul(mul(own[v + 2], scale), factors[v + 2]), mul(mul(own[v + 3], scale), factors[v + 3])
            store_four_floats(floats, 16 * np.int64(four), a, b, d, e)
            if four >= first and np.int32(four - first) < n_stored:
                store_four_floats(normed, 16 * np.int64(four), a, b, d, e)

    return take, normalise


def _gates_and_scales(shape: DownShape):
    """Build `make_gates(inject, thread, floats)` and `make_scales(shared, floats, thread, eps)`: what the other threads do meanwhile."""
    hidden, n_streams, count, chain = shape.hidden, shape.n_streams, np.float32(shape.n_streams), squares(shape.hidden)
    gates_at, scales_at = shape.gates_at // 4, shape.scales_at // 4

    @jit
    def make_gates(inject, thread, floats):
        if thread < n_streams:
            floats[gates_at + thread] = gate_of(inject[thread], count)
        cuda.syncthreads()

    @jit
    def make_scales(shared, floats, thread, eps):
        c = thread >> 5
        cuda.syncthreads()
        if c < n_streams:
            scale = scale_from_sum(sum_row(chain(shared + 4 * hidden * c, thread & 31)), hidden, eps)
            if thread & 31 == 0:
                floats[scales_at + c] = scale
        cuda.syncthreads()

    return make_gates, make_scales


def _products(shape: DownShape):
    """Build `multiply(shared, thread, lanes)`: two lanes of every output of the block, by PRODUCT_THREADS threads; AHEAD steps are read at once."""
    widen_two, value_bytes = WIDEN_TWO[shape.type_name]
    n_steps, n_outputs, row_bytes, weights_at = shape.n_in // WIDE, shape.n_outputs, shape.row_bytes, shape.weights_at
    ahead = next(n for n in range(AHEAD, 0, -1) if n_steps % n == 0)
    n_values, n_weights = 2 * ahead, 2 * ahead * n_outputs

    @jit
    def multiply(shared, thread, lanes):
        x, w = cuda.local.array(n_values, np.float32), cuda.local.array(n_weights, np.float32)
        for begin in range(0, n_steps, ahead):
            i = WIDE * begin + 2 * thread
            values, weights = shared + 4 * i, shared + (weights_at + value_bytes * i)
            for m in range(ahead):
                x[2 * m], x[2 * m + 1] = shared_two_floats(values + 4 * WIDE * m)
                for n in range(n_outputs):
                    at = 2 * (n_outputs * m + n)
                    w[at], w[at + 1] = widen_two(weights + (n * row_bytes + value_bytes * WIDE * m))
            for m in range(ahead):
                for n in range(n_outputs):
                    at = 2 * (n_outputs * m + n)
                    lanes[2 * n] = fma(w[at], x[2 * m], lanes[2 * n])
                    lanes[2 * n + 1] = fma(w[at + 1], x[2 * m + 1], lanes[2 * n + 1])

    return multiply


def _total(shape: DownShape):
    """Build `total_of(shared, which, in_warp)`: the sum of all lanes of an output, by a warp."""
    lanes_at = shape.lanes_at

    @jit
    def lane(at, m):
        return from_bits(np.int32(shared_word(at + 128 * m)))

    @jit
    def total_of(shared, which, in_warp):
        at = shared + (lanes_at + 4 * (WIDE * which + in_warp))
        return sum_row(tree8(lane(at, 0), lane(at, 1), lane(at, 2), lane(at, 3), lane(at, 4), lane(at, 5), lane(at, 6), lane(at, 7)))

    return total_of


def _fetch(shape: DownShape, target: Target):
    """Build `fetch(shared, matrix, first, n_here, norm, n_stored, thread)`: weight rows first .. first + n_here - 1 to shared memory.

    A part of the norm's weights comes with them, for the second-level cache to hold them when they are wanted: its place is written later.
    """
    row_bytes, n_threads, weights_at, lanes_at = shape.row_bytes, shape.n_threads, shape.weights_at, shape.lanes_at
    normalises, most, n_fours = shape.source != NORMED, WIDE * shape.n_outputs // 4, shape.n_in // 4
    copy, commit = copier(16, 0, 0, target, once=True), copies(target, 0).commit

    @jit
    def fetch(shared, matrix, first, n_here, norm, n_stored, thread):
        start = matrix + np.int64(first) * row_bytes
        for piece in range(thread, n_here * (row_bytes >> 4), n_threads):
            copy(shared + (weights_at + 16 * piece), start + 16 * np.int64(piece))
        if normalises:
            four = np.int32(np.int32(cuda.blockIdx.x) * n_stored + thread)
            if thread < min(n_stored, np.int32(most)) and four < n_fours:
                copy(shared + (lanes_at + 16 * thread), global_address(norm) + 16 * np.int64(four))
        commit()

    return fetch


@cache
def read_down_kernel(shape: DownShape, target: Target):
    """Return kernel(values, y, inject, norm, eps, down, other, n_out, n_other, n_stored, normed, low, injected): two matrices of the same input.

    The second's blocks are behind the first's; n_other may be 0.  Grid: the blocks of both, n_outputs outputs each; a block stores n_stored
    fours of normed values.  The first threads have values, the last PRODUCT_THREADS make scales and products.
    """
    n_outputs, n_with_values, lanes_at, wait_weights = shape.n_outputs, shape.n_with_values, shape.lanes_at, copies(target, 0).wait
    n_own, n_lanes, is_due, normalises = 4 * shape.n_streams, 2 * n_outputs, shape.source == PLAIN, shape.source != NORMED
    (take, normalise), (make_gates, make_scales) = _values(shape), _gates_and_scales(shape)
    fetch, multiply, total_of = _fetch(shape, target), _products(shape), _total(shape)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(shape.n_threads, MIN_BLOCKS)
    def run(values, y, inject, norm, eps, down, other, n_out, n_other, n_stored, normed, low, injected):
        shared, floats = shared_address(cuda.shared.array(0, types.uint8)), cuda.shared.array(0, types.float32)
        own, lanes = cuda.local.array(n_own, np.float32), cuda.local.array(n_lanes, np.float32)
        thread, block, n_first = np.int32(cuda.threadIdx.x), np.int32(cuda.blockIdx.x), np.int32((n_out + n_outputs - 1) // n_outputs)
        is_other = block >= n_first
        first = np.int32((block - n_first if is_other else block) * n_outputs)
        n_here = min(np.int32(n_outputs), np.int32((n_other if is_other else n_out) - first))
        fetch(shared, global_address(other) if is_other else global_address(down), first, n_here, norm, n_stored, thread)
        go_on()
        wait_before()
        if thread < n_with_values:
            take(values, y, thread, floats, own)
            if normalises:
                normalise(norm, n_stored, thread, floats, own, normed)
        else:
            if is_due:
                make_gates(inject, np.int32(thread - n_with_values), floats)
            if normalises:
                make_scales(shared, floats, np.int32(thread - n_with_values), eps)
        wait_weights()
        cuda.syncthreads()
        thread = np.int32(thread - n_with_values)
        which, in_warp = thread >> 5, thread & 31
        if thread >= 0:
            for v in range(n_lanes):
                lanes[v] = ZERO
            multiply(shared, thread, lanes)
            for n in range(n_outputs):
                at = shared + (lanes_at + 4 * WIDE * n + 8 * thread)
                store_shared_float(at, lanes[2 * n])
                store_shared_float(at + 4, lanes[2 * n + 1])
        cuda.syncthreads()
        if thread >= 0 and which < n_here:
            total = total_of(shared, which, in_warp)
            if in_warp == 0:
                if is_other:
                    injected[first + which] = total
                else:
                    low[first + which] = total

    return run


def takes(device: CudaDevice, config: ModelConfig, source: int, down, inject) -> bool:
    """Whether the kernel takes a read of one row with these matrices (inject: or None); launches of `streams` and of products take all others."""
    matrices = [down] if inject is None else [down, inject]
    if source not in SOURCES or not all(isinstance(matrix, FloatMatrix) and matrix.type_name == down.type_name for matrix in matrices):
        return False
    if down.type_name not in WIDEN_TWO or config.hidden % 128 or config.n_streams not in (1, 2, 4):
        return False
    shape = DownShape(config.hidden, config.n_streams, source, down.type_name, OUTPUTS)
    return shape.n_in % WIDE == 0 and shape.n_threads <= MOST_THREADS and shape.shared_bytes <= shared_room(device.card.capability)


def launch_read_down(
    device: CudaDevice, config: ModelConfig, values, down: FloatMatrix, low, *, other: FloatMatrix | None = None, injected=None, norm=None,
    normed=None, y=None, inject=None, programmatic: bool = False,
) -> Launch:
    """low = down . normed of one row, and injected = other . normed, from the streams `values` with y (or nothing) added, or from normed ones.

    Without `norm` the values are normed already; `normed` [C * H] is written else.  The streams stay as they are.
    """
    source = NORMED if norm is None else NO_BLOCK if y is None else PLAIN
    require(takes(device, config, source, down, other), f"down {down.type_name} hidden={config.hidden}", "this read does not take it", "use streams")
    shape = DownShape(config.hidden, config.n_streams, source, down.type_name, OUTPUTS)
    # Arguments that a variant does not read are the values, and `down` itself.
    y, inject, norm, normed, injected = (values if argument is None else argument for argument in (y, inject, norm, normed, injected))
    raw, n_other = (down.raw, 0) if other is None else (other.raw, other.n_out)
    n_blocks = -(-down.n_out // OUTPUTS) + -(-n_other // OUTPUTS)
    sizes = (np.int32(n) for n in (down.n_out, n_other, -(-shape.n_in // (4 * n_blocks))))
    arguments = (values, y, inject, norm, np.float32(config.rms_epsilon), down.raw, raw, *sizes, normed, low, injected)
    run = read_down_kernel(shape, device.target)
    return Launch(device, run, Shape((n_blocks, 1), shape.n_threads, shape.shared_bytes), arguments, programmatic)
