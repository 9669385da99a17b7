"""Hashes of rows of values that any executor can compute where the data lies.

A row's hash is the sum, modulo 2^64, of a mixed word per element: the order of the sum does not matter, so threads, lanes
and cards need no common one.  Element i with 32 bits b (NaN folded to 0x7FC00000, and nothing else folded: -0 is not +0)
gives  mix((b + 1) * GOLDEN + i * STRIDE),  mix being the finaliser of SplitMix64 (Steele, Lea, Flood 2014).  Two hashes with
different strides make 128 bits.  Does not know: what the rows are.
"""

import numpy as np

from strata.numerics.cpu import jit, kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
STRIDES = (np.uint64(0xD1B54A32D192ED03), np.uint64(0xABC98388FB8FAC03))
STRIDE_A, STRIDE_B = STRIDES
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
ONE = np.uint64(1)
SHIFT_30, SHIFT_27, SHIFT_31 = np.uint64(30), np.uint64(27), np.uint64(31)
MAGNITUDE, INFINITY, FOLDED = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000), np.uint32(0x7FC00000)


@jit
def mix(x):
    """SplitMix64's finaliser on uint64."""
    x = (x ^ (x >> SHIFT_30)) * FIRST
    x = (x ^ (x >> SHIFT_27)) * SECOND
    return x ^ (x >> SHIFT_31)


@kernel
def hash_rows(bits, is_float, out):
    """Hash rows: bits uint32 [rows, n]; out uint64 [rows, 2]; NaN is folded where is_float."""
    for row in range(bits.shape[0]):
        a = b = np.uint64(0)
        for i in range(bits.shape[1]):
            word = bits[row, i]
            if is_float and (word & MAGNITUDE) > INFINITY:
                word = FOLDED
            base, at = (np.uint64(word) + ONE) * GOLDEN, np.uint64(i)
            a += mix(base + at * STRIDE_A)
            b += mix(base + at * STRIDE_B)
        out[row, 0], out[row, 1] = a, b


def row_hashes(values: np.ndarray) -> np.ndarray:
    """Return uint64 [rows, 2] for float32 or int32 values [rows, ...]; every row's trailing dimensions are flattened."""
    flat = np.ascontiguousarray(values).reshape(values.shape[0], -1)
    out = np.empty((flat.shape[0], 2), np.uint64)
    hash_rows(flat.view(np.uint32), flat.dtype == np.float32, out)
    return out


def hex_of(pair: np.ndarray) -> str:
    """Return a hash's 32 hexadecimal digits."""
    return f"{int(pair[0]):016x}{int(pair[1]):016x}"
