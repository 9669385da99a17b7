"""The experts' activation, silu(gate) * up, and the codes of the result.

A warp has 32 neighbouring values of one row of entries; for a span of 256 (the rounding mode `grouped`) use the plain product and
`products.code` with spans.  Flat shapes: gate, up [entries, F]; hidden may be gate itself.  Does not know: experts.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.device import CudaDevice
from strata.cuda.group_codes import arrays_of, group_coder
from strata.cuda.launch import Launch, Shape
from strata.cuda.on_cuda import silu
from strata.cuda.products import Coded
from strata.cuda.seam import Target, kernel, launch_dependents, mul, wait_for_dependency
from strata.cuda.shapes import require

THREADS = 256


@cache
def activation_kernel(target: Target):
    """Return kernel(gate, up, n_values, hidden, codes, turned, scales, sums): a thread per value."""
    code_group = group_coder(target)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(gate, up, n_values, hidden, codes, turned, scales, sums):
        go_on()
        wait_before()
        i = np.int64(cuda.blockIdx.x) * THREADS + np.int32(cuda.threadIdx.x)
        if i >= n_values:
            return
        value = mul(silu(gate[i]), up[i])
        hidden[i] = value
        code_group(value, np.int32(cuda.threadIdx.x) & 31, i >> 5, codes, turned, scales, sums)

    return run


def launch_activation(device: CudaDevice, gate, up, n_entries: int, n: int, hidden, coded: Coded, programmatic: bool = False) -> Launch:
    """hidden [entries, n] = silu(gate) * up, and its codes."""
    require(n % 32 == 0, f"expert width {n}", "codes come in groups of 32")
    n_values = n_entries * n
    shape = Shape(((n_values + THREADS - 1) // THREADS, 1), THREADS)
    return Launch(device, activation_kernel(device.target), shape, (gate, up, np.int64(n_values), hidden, *arrays_of(coded)), programmatic)
