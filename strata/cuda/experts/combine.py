"""The combination of experts' outputs: rank order, the shared expert last.

y = w_0 f_0, then fused multiply-adds in rank order, then the shared expert with its gate: host/experts.py.  Device helpers, so
that the stream write of a few rows can take combined values without a kernel of its own, and that kernel for many rows, where the blocks
of all streams would read the outputs again.  Flat shapes: outputs [entries, H]; entry_of int32, weights float32 [rows, K]; shared [rows, H];
shared_gate [rows], the gate's logit.  Does not know: routers, tiers, how many rows are many.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.on_cuda import sigmoid
from strata.cuda.machine.posting import read_past, read_posted
from strata.cuda.machine.seam import Target, fma, jit, kernel, launch_dependents, load_four_floats, mul, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.machine.stores import store_four_floats

MOST_THREADS = 640


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """What a combination reads; `n_used` is K.

    `is_known`: what the router gave, and what is older, is there as soon as the blocks of a launch directly behind the outputs' may start.
    """

    n_used: int
    outputs: Any
    entry_of: Any
    weights: Any
    shared: Any
    shared_gate: Any
    is_known: bool = False

    @property
    def arrays(self) -> tuple:
        """The arrays in the order in which kernels take them."""
        return self.outputs, self.entry_of, self.weights, self.shared, self.shared_gate


@cache
def combiner_of_four(hidden: int, n_used: int):
    """Return two device helpers: what the router gave, then values i .. i + 3 of a row, i mod 4 = 0.

    learn(entry_of, weights, shared_gate, row, entries, factors) -> the shared expert's gate; entries, factors [K] are filled.  It reads
    past the first-level cache, for it may be asked before the kernel ahead has ended.
    combined(outputs, entries, factors, shared, gate, row, i): all outputs are on their way before the first is used.
    """
    n_loaded = 4 * n_used

    @jit
    def learn(entry_of, weights, shared_gate, row, entries, factors):
        first = np.int64(row) * n_used
        for rank in range(n_used):
            entries[rank], factors[rank] = read_posted(entry_of, first + rank), read_past(weights, first + rank)
        return sigmoid(read_past(shared_gate, np.int64(row)))

    @jit
    def combined(outputs, entries, factors, shared, gate, row, i):
        found = cuda.local.array(n_loaded, np.float32)
        for rank in range(n_used):
            v, at = 4 * rank, np.int64(entries[rank]) * hidden + i
            found[v], found[v + 1], found[v + 2], found[v + 3] = load_four_floats(outputs, 4 * at)
        s0, s1, s2, s3 = load_four_floats(shared, 4 * (np.int64(row) * hidden + i))
        t0, t1, t2, t3 = mul(factors[0], found[0]), mul(factors[0], found[1]), mul(factors[0], found[2]), mul(factors[0], found[3])
        for rank in range(1, n_used):
            w, v = factors[rank], 4 * rank
            t0, t1 = fma(w, found[v], t0), fma(w, found[v + 1], t1)
            t2, t3 = fma(w, found[v + 2], t2), fma(w, found[v + 3], t3)
        return fma(gate, s0, t0), fma(gate, s1, t1), fma(gate, s2, t2), fma(gate, s3, t3)

    return learn, combined


def _threads(hidden: int) -> int:
    """Threads of a row's block: each takes four neighbouring values at a time."""
    return min(MOST_THREADS, (hidden + 127) // 128 * 32)


@cache
def combine_kernel(hidden: int, n_used: int, target: Target):
    """Return kernel(outputs, entry_of, weights, shared, shared_gate, out): a block a row."""
    learn, combined = combiner_of_four(hidden, n_used)
    n_threads = _threads(hidden)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads)
    def run(outputs, entry_of, weights, shared, shared_gate, out):
        entries, factors = cuda.local.array(n_used, np.int32), cuda.local.array(n_used, np.float32)
        go_on()
        wait_before()
        row = np.int32(cuda.blockIdx.x)
        gate = learn(entry_of, weights, shared_gate, row, entries, factors)
        for i in range(4 * np.int32(cuda.threadIdx.x), hidden, 4 * n_threads):
            a, b, c, d = combined(outputs, entries, factors, shared, gate, row, np.int32(i))
            store_four_floats(out, 4 * (np.int64(row) * hidden + i), a, b, c, d)

    return run


def launch_combine(device: CudaDevice, hidden: int, combined: Combined, n_rows: int, out, programmatic: bool = False) -> Launch:
    """out [rows, H] = the combined experts; H mod 4 = 0."""
    require(hidden % 4 == 0, f"hidden={hidden}", "four neighbouring values go together")
    run, shape = combine_kernel(hidden, combined.n_used, device.target), Shape((n_rows, 1), _threads(hidden))
    return Launch(device, run, shape, (*combined.arrays, out), programmatic)
