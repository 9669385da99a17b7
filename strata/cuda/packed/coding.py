"""Coding of activation rows on the card: int8 codes, their turned copy, float32 scales and sums of codes.

The arithmetic is numerics/codes.py; the arrays are those of host/coding.py.  The turned copy holds the same codes with each
16 transposed as 4 x 4 bytes (value 4 a + b at 4 b + a), the order that two-bit formats unpack to (readers.py).  Eight
threads code a group of 32 values; the largest magnitude and the sum are integers, so the threads may meet in any order.
Does not know: which rows are alone.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.machine.on_cuda import code_of, magnitude, scale_of
from strata.cuda.machine.seam import (
    Target, exchange_int, jit, kernel, launch_dependents, load_four_floats, store_word, wait_for_dependency,
)

THREADS = 256
GROUPS_PER_BLOCK = THREADS // 8
BYTE = np.int32(255)


@jit
def largest_of_four(x, value):
    """Bits of the largest magnitude of x[value : value + 4]."""
    x0, x1, x2, x3 = load_four_floats(x, 4 * np.int64(value))
    a, b = max(magnitude(x0), magnitude(x1)), max(magnitude(x2), magnitude(x3))
    return np.int32(max(a, b))


@jit
def largest_of_eight_threads(m):
    m = np.int32(max(m, exchange_int(m, np.int32(4))))
    m = np.int32(max(m, exchange_int(m, np.int32(2))))
    return np.int32(max(m, exchange_int(m, np.int32(1))))


@jit
def sum_of_eight_threads(n):
    n = np.int32(n + exchange_int(n, np.int32(4)))
    n = np.int32(n + exchange_int(n, np.int32(2)))
    return np.int32(n + exchange_int(n, np.int32(1)))


@jit
def store_codes(x0, x1, x2, x3, largest, place, part, store, codes, turned, scales, sums):
    """Code four values of group `place` (of all rows' groups), `part` = 0..7; all 32 threads of a warp come here."""
    dx, inverse = scale_of(largest)
    c0, c1, c2, c3 = code_of(x0, inverse), code_of(x1, inverse), code_of(x2, inverse), code_of(x3, inverse)
    total = sum_of_eight_threads(np.int32(c0 + c1 + c2 + c3))
    if store:
        at = 32 * np.int64(place)
        word = (c0 & BYTE) | ((c1 & BYTE) << 8) | ((c2 & BYTE) << 16) | (c3 << 24)
        store_word(codes, at + 4 * part, np.int32(word))
        at += 16 * (part >> 2) + (part & 3)
        turned[at], turned[at + 4], turned[at + 8], turned[at + 12] = np.int8(c0), np.int8(c1), np.int8(c2), np.int8(c3)
        if part == 0:
            scales[place], sums[place] = dx, total


def grid_of(n_rows: int, n_groups: int) -> int:
    """Return the number of blocks for n_rows rows of n_groups groups."""
    return (n_rows * n_groups + GROUPS_PER_BLOCK - 1) // GROUPS_PER_BLOCK


@cache
def encode(target: Target):
    """Return the canonical kernel (x, n_places, codes, turned, scales, sums): n_places = rows * groups, flat arrays."""
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @kernel(THREADS)
    def run(x, n_places, codes, turned, scales, sums):
        go_on()
        wait_before()
        thread = np.int32(cuda.threadIdx.x)
        place, part = np.int32(cuda.blockIdx.x) * GROUPS_PER_BLOCK + (thread >> 3), thread & 7
        inside = place < n_places
        source = np.int64(place if inside else n_places - 1)
        x0, x1, x2, x3 = load_four_floats(x, 128 * source + 16 * part)
        m = np.int32(max(max(magnitude(x0), magnitude(x1)), max(magnitude(x2), magnitude(x3))))
        store_codes(x0, x1, x2, x3, largest_of_eight_threads(m), source, part, inside, codes, turned, scales, sums)

    return run


@cache
def encode_spans(target: Target):
    """Return the kernel (x, n_groups, n_places, spans, codes, turned, scales, sums), spans int32 [rows]: values per scale."""
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @kernel(THREADS)
    def run(x, n_groups, n_places, spans, codes, turned, scales, sums):
        go_on()
        wait_before()
        thread = np.int32(cuda.threadIdx.x)
        place, part = np.int32(cuda.blockIdx.x) * GROUPS_PER_BLOCK + (thread >> 3), thread & 7
        inside = place < n_places
        source = np.int32(place if inside else n_places - 1)
        row, group = source // n_groups, source % n_groups
        per_span = max(np.int32(spans[row] >> 5), np.int32(1))
        first = np.int32(group - group % per_span)
        last = min(np.int32(first + per_span), np.int32(n_groups))
        m = np.int32(0)
        for other in range(first, last):
            m = max(m, largest_of_four(x, 32 * (row * n_groups + other) + 4 * part))
        x0, x1, x2, x3 = load_four_floats(x, 128 * np.int64(source) + 16 * part)
        store_codes(x0, x1, x2, x3, largest_of_eight_threads(m), source, part, inside, codes, turned, scales, sums)

    return run
