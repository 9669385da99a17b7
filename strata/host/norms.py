"""Norms of one vector: 32 lanes, chains of fused squares, halving tree.

    sum_of_squares(x)     element i in lane i mod 32, lane = fma(x_i, x_i, lane)
    inverse_rms(x, eps)   1 / sqrt(sum / n + eps)
    inverse_l2(x, eps)    1 / sqrt(sum + eps)

Division and square root are correctly rounded.  Does not know: weights, heads.
"""

import numpy as np

from strata.numerics.cpu import add, div, fma, jit, sqrt
from strata.numerics.on_cpu import sum_row_lanes
from strata.numerics.orders import ROW

ZERO, ONE = np.float32(0.0), np.float32(1.0)


@jit
def sum_of_squares(x):
    lanes = np.empty(ROW, np.float32)
    for lane in range(ROW):
        lanes[lane] = ZERO
    n = x.shape[0]
    whole = n - n % ROW
    for at in range(0, whole, ROW):
        for lane in range(ROW):
            lanes[lane] = fma(x[at + lane], x[at + lane], lanes[lane])
    for lane in range(n - whole):
        lanes[lane] = fma(x[whole + lane], x[whole + lane], lanes[lane])
    return sum_row_lanes(lanes, 0)


@jit
def inverse_rms(x, eps):
    return div(ONE, sqrt(add(div(sum_of_squares(x), np.float32(x.shape[0])), eps)))


@jit
def inverse_l2(x, eps):
    return div(ONE, sqrt(add(sum_of_squares(x), eps)))
