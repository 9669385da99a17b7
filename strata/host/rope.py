"""Rotary embedding of one vector: the first 2 * n dimensions turn in pairs (i, i + n) by table row [2, n] (cosines, sines).

    x'[i] = x[i] cos - x[i+n] sin,   x'[i+n] = x[i+n] cos + x[i] sin;   every product rounded by itself
"""

from strata.numerics.cpu import add, jit, mul, sub


@jit
def rotate(x, turn):
    """Turn x in place."""
    n = turn.shape[1]
    for i in range(n):
        a, b = x[i], x[i + n]
        x[i] = sub(mul(a, turn[0, i]), mul(b, turn[1, i]))
        x[i + n] = add(mul(b, turn[0, i]), mul(a, turn[1, i]))
