"""Products of float weight rows of exactly 64 values: the activation row stays in registers.

Such a row has one value in each of the first 64 of 256 lanes, so a chain is one product, and the halving tree is

    ((p0 + p4) + (p2 + p6)) + ((p1 + p5) + (p3 + p7)),  then the eight-lane tree

for products p of eight lanes each.  The other lanes are +0: adding them makes a difference to a sum of nothing but -0 only,
so +0 is added once at the end.  Does not know: what the products are for.
"""

import numpy as np

from strata.cpu_pool.lane_memory import load_floats, store_float
from strata.cpu_pool.lane_moves import sum_lanes
from strata.numerics.cpu import add, jit

ZERO = np.float32(0.0)
SHORT = 64


def build_short_sums(read, size):
    """Compile `short_sums(weights, n_rows, x, to)`: the products of n_rows rows at `weights` with x, float32 at `to`.

    `read(at)` gives eight weights of `size` bytes; all arguments but n_rows are addresses.
    """

    @jit
    def short_sums(weights, n_rows, x, to):
        x0, x1, x2, x3 = load_floats(x), load_floats(x + 32), load_floats(x + 64), load_floats(x + 96)
        x4, x5, x6, x7 = load_floats(x + 128), load_floats(x + 160), load_floats(x + 192), load_floats(x + 224)
        for n in range(n_rows):
            w = weights + n * SHORT * size
            q0, q1 = read(w) * x0 + read(w + 32 * size) * x4, read(w + 8 * size) * x1 + read(w + 40 * size) * x5
            q2, q3 = read(w + 16 * size) * x2 + read(w + 48 * size) * x6, read(w + 24 * size) * x3 + read(w + 56 * size) * x7
            store_float(to + 4 * n, add(sum_lanes((q0 + q2) + (q1 + q3)), ZERO))

    return short_sums
