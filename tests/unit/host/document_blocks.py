"""The stored rows that docs/NUMERICS.md describes beside its vectors of products."""

import numpy as np

from tests.unit.numerics.document import sequence


def halves(s: int, n: int) -> np.ndarray:
    """The halves nearest to P(s)_0 .. P(s)_(n-1), as bytes [n, 2]."""
    return sequence(s, n).astype(np.float16).reshape(n, 1).view(np.uint8)


def q8_0() -> np.ndarray:
    codes = np.rint(np.float32(127) * sequence(7, 320)).astype(np.int8).reshape(10, 32)
    return np.concatenate((halves(6, 10), codes.view(np.uint8)), axis=1)


def q5_1() -> np.ndarray:
    codes = (5 * np.arange(32) + 3 * np.arange(10)[:, None]) % 32
    high = ((codes >> 4) << np.arange(32)).sum(axis=1).astype("<u4").reshape(10, 1).view(np.uint8)
    low = (codes[:, :16] & 15) | ((codes[:, 16:] & 15) << 4)
    return np.concatenate((halves(6, 10), halves(9, 10), high, low.astype(np.uint8)), axis=1)


def q6_k() -> np.ndarray:
    codes, low, high = (11 * np.arange(512) % 64).reshape(2, 8, 32), np.zeros((2, 128), np.int64), np.zeros((2, 64), np.int64)
    for g in range(8):
        upper, k = divmod(g, 4)
        low[:, 64 * upper + 32 * (k % 2) :][:, :32] |= (codes[:, g] & 15) << (4 if k >= 2 else 0)
        high[:, 32 * upper :][:, :32] |= (codes[:, g] >> 4) << (2 * k)
    scales = (29 * np.arange(32) % 256 - 128).astype(np.int8).reshape(2, 16).view(np.uint8)
    return np.concatenate((low.astype(np.uint8), high.astype(np.uint8), scales, halves(6, 2)), axis=1)


BLOCKS = {"Q8_0": q8_0, "Q5_1": q5_1, "Q6_K": q6_k}
"""Each gives one row of the matrix, uint8 [blocks, block bytes]."""


def brain_row() -> np.ndarray:
    """The BF16 row: the upper 16 bits of P(7)_i, uint16 [1, 320]."""
    return (sequence(7, 320).view(np.uint32) >> 16).astype(np.uint16)[None]
