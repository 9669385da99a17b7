"""The eight-lane dot product of float32 vectors: element i in lane i mod 8, fused chains, the eight-lane tree."""

from strata.host.float_vectors import dot_eights
from strata.numerics.cpu import jit


@jit
def dot8(a, b, n):
    """Return sum of a[i] * b[i], i < n, n a multiple of 8; a and b contiguous."""
    return dot_eights(a, b, n)
