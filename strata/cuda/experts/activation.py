"""The experts' activation, silu(gate) * up, and the codes of the result.

Eight threads have 32 neighbouring values of one row of entries; for a span of 256 (the rounding mode `grouped`) use the plain product and
`products.code` with spans.  Flat shapes: gate, up [entries, F]; hidden may be gate itself.  Does not know: experts.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.on_cuda import magnitude, silu
from strata.cuda.machine.seam import Target, kernel, launch_dependents, load_four_floats, mul, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.machine.stores import store_four_floats
from strata.cuda.packed.coding import GROUPS_PER_BLOCK, THREADS, grid_of, largest_of_eight_threads, store_codes
from strata.cuda.packed.group_codes import arrays_of
from strata.cuda.packed.products import Coded


@cache
def activation_kernel(target: Target):
    """Return kernel(gate, up, n_groups, hidden, codes, turned, scales, sums): eight threads a group, four values each."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(gate, up, n_groups, hidden, codes, turned, scales, sums):
        go_on()
        wait_before()
        thread = np.int32(cuda.threadIdx.x)
        place, part = np.int64(cuda.blockIdx.x) * GROUPS_PER_BLOCK + (thread >> 3), thread & 7
        inside = place < n_groups
        place = place if inside else n_groups - 1
        at = 128 * place + 16 * part
        g0, g1, g2, g3 = load_four_floats(gate, at)
        u0, u1, u2, u3 = load_four_floats(up, at)
        x0, x1, x2, x3 = mul(silu(g0), u0), mul(silu(g1), u1), mul(silu(g2), u2), mul(silu(g3), u3)
        m = np.int32(max(max(magnitude(x0), magnitude(x1)), max(magnitude(x2), magnitude(x3))))
        largest = largest_of_eight_threads(m)
        if inside:
            store_four_floats(hidden, at, x0, x1, x2, x3)
        store_codes(x0, x1, x2, x3, largest, place, part, inside, codes, turned, scales, sums)

    return run


def launch_activation(device: CudaDevice, gate, up, n_entries: int, n: int, hidden, coded: Coded, programmatic: bool = False) -> Launch:
    """hidden [entries, n] = silu(gate) * up, and its codes."""
    require(n % 32 == 0, f"expert width {n}", "codes come in groups of 32")
    n_groups = n_entries * n // 32
    shape = Shape((grid_of(n_entries, n // 32), 1), THREADS)
    return Launch(device, activation_kernel(device.target), shape, (gate, up, np.int64(n_groups), hidden, *arrays_of(coded)), programmatic)
