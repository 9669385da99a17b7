"""The eight-lane dot product of float32 vectors: element i in lane i mod 8, fused chains, the eight-lane tree."""

import numpy as np

from strata.numerics.cpu import fma, jit
from strata.numerics.on_cpu import tree8

ZERO = np.float32(0.0)


@jit
def dot8(a, b, n):
    """Return sum of a[i] * b[i], i < n, n a multiple of 8."""
    l0 = l1 = l2 = l3 = l4 = l5 = l6 = l7 = ZERO
    for i in range(0, n, 8):
        l0 = fma(a[i], b[i], l0)
        l1 = fma(a[i + 1], b[i + 1], l1)
        l2 = fma(a[i + 2], b[i + 2], l2)
        l3 = fma(a[i + 3], b[i + 3], l3)
        l4 = fma(a[i + 4], b[i + 4], l4)
        l5 = fma(a[i + 5], b[i + 5], l5)
        l6 = fma(a[i + 6], b[i + 6], l6)
        l7 = fma(a[i + 7], b[i + 7], l7)
    return tree8(l0, l1, l2, l3, l4, l5, l6, l7)
