"""Coding of activation rows: int8 codes, float32 scales and sums of codes, per group of 32 values.

A scale's span is 32 values in the canonical contract; `grouped` gives a lone expert row a span of 256 (or of the row where
that is shorter).  The arrays look the same for every span: one scale per group of 32, repeated within a span.  In mode `device`
the scales of what a device computes are rounded to binary16; the codes are those of the scale before.
Does not know: which rows are alone.
"""

import numpy as np

from strata.cpu_pool.fork import fork
from strata.formats.contract import GROUP
from strata.numerics.cpu import jit, kernel
from strata.numerics.on_cpu import code_of, magnitude, scale_of

GRAIN_VALUES = 8192
LARGEST_HALF = np.float32(65504.0)


@jit
def encode_row(x, row, span, codes, scales, sums):
    """Code x[row, :] with one scale per `span` values."""
    n = x.shape[1]
    for first in range(0, n, span):
        last = first + span if first + span < n else n
        largest = np.int32(0)
        for i in range(first, last):
            m = magnitude(x[row, i])
            largest = m if m > largest else largest
        dx, inverse = scale_of(largest)
        for group in range(first // GROUP, last // GROUP):
            total = np.int32(0)
            for i in range(group * GROUP, group * GROUP + GROUP):
                code = code_of(x[row, i], inverse)
                codes[row, i] = np.int8(code)
                total += code
            scales[row, group] = dx
            sums[row, group] = total


@jit
def _encode_rows(begin, end, arguments):
    x, spans, codes, scales, sums = arguments
    for row in range(begin, end):
        encode_row(x, row, spans[row], codes, scales, sums)


@kernel
def encode(control, x, spans, codes, scales, sums):
    """Code rows: x float32 [rows, n], spans int32 [rows], codes int8 [rows, n], scales float32 and sums int32 [rows, n/32]."""
    fork(control, _encode_rows, x.shape[0], 1 + GRAIN_VALUES // x.shape[1], (x, spans, codes, scales, sums))


def round_to_halves(scales: np.ndarray, chosen: np.ndarray) -> None:
    """Round the scales of chosen rows to binary16, in place: nearest even, 65504 at most; scales float32 [rows, n/32] >= 0."""
    halves = np.minimum(scales[chosen], LARGEST_HALF).astype(np.float16)
    scales[chosen] = halves.astype(np.float32)
