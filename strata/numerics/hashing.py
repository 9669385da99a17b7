"""Hashes of rows of values that any executor can compute where the data lies.

A row's hash is the sum, modulo 2^64, of a mixed word per element: the order of the sum does not matter, so threads, lanes
and cards need no common one.  Element i with bits b (NaN folded to 0x7FC00000, in half precision to 0x7E00, and nothing else
folded: -0 is not +0; narrower elements widened with zeros, an int64 as two elements, the low half first) gives  mix((b + 1) * GOLDEN + i * STRIDE),  mix being the finaliser of SplitMix64 (Steele, Lea, Flood 2014).  Two hashes with
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
FLOAT = (np.uint32(0x7FFFFFFF), np.uint32(0x7F800000), np.uint32(0x7FC00000))
HALF = (np.uint32(0x7FFF), np.uint32(0x7C00), np.uint32(0x7E00))
PLAIN = (np.uint32(0xFFFFFFFF), np.uint32(0xFFFFFFFF), np.uint32(0))
"""How NaN is folded: bits of the magnitude, the largest that is no NaN, and what every NaN becomes (plain: none is one)."""


@jit
def mix(x):
    """SplitMix64's finaliser on uint64."""
    x = (x ^ (x >> SHIFT_30)) * FIRST
    x = (x ^ (x >> SHIFT_27)) * SECOND
    return x ^ (x >> SHIFT_31)


@jit
def hash_elements(words, rule, offset):
    """Return the two sums over words [n] of an unsigned type, the elements offset, offset + 1, ... of a row."""
    magnitude, largest, folded = rule
    a = b = np.uint64(0)
    for i in range(words.shape[0]):
        word = np.uint32(words[i])
        word = folded if (word & magnitude) > largest else word
        base, at = (np.uint64(word) + ONE) * GOLDEN, np.uint64(i + offset)
        a += mix(base + at * STRIDE_A)
        b += mix(base + at * STRIDE_B)
    return a, b


def _hashers(word, rule):
    """Return the kernels for values whose elements are words of an unsigned type, under a rule for NaN.

    rows(values [rows, n], out uint64 [rows, 2])
    lines(values [m, n], lines int32 [rows, k], lengths int32 [rows], out): record i is values[lines[i, 0]], values[lines[i, 1]],
    ... up to a negative line, cut at lengths[i] words
    """

    @kernel
    def rows(values, out):
        for row in range(values.shape[0]):
            out[row, 0], out[row, 1] = hash_elements(values[row].view(word), rule, 0)

    @kernel
    def lines(values, lines, lengths, out):
        for i in range(lines.shape[0]):
            a = b = np.uint64(0)
            at = 0
            for j in range(lines.shape[1]):
                if lines[i, j] < 0 or at >= lengths[i]:
                    break
                words = values[lines[i, j]].view(word)
                left = lengths[i] - at
                more_a, more_b = hash_elements(words[:left] if left < words.shape[0] else words, rule, at)
                a, b, at = a + more_a, b + more_b, at + words.shape[0]
            out[i, 0], out[i, 1] = a, b

    return rows, lines


HASHERS = {
    np.dtype(kind).char: _hashers(word, rule)
    for kind, word, rule in (
        (np.float32, np.uint32, FLOAT), (np.uint16, np.uint16, HALF), (np.int32, np.uint32, PLAIN), (np.int64, np.uint32, PLAIN),
        (np.int8, np.uint8, PLAIN),
    )
}
"""The kernels by the character of a values' type; half bits lie in uint16."""
ALL = 1 << 30


def row_hashes(values: np.ndarray) -> np.ndarray:
    """Return uint64 [rows, 2] of values [rows, ...]; every row's trailing dimensions are flattened."""
    out = np.empty((values.shape[0], 2), np.uint64)
    HASHERS[values.dtype.char][0](_table(values), out)
    return out


def line_hashes(values: np.ndarray, lines: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """Return uint64 [n, 2] of the records at lines [n] or [n, k] of values; equal to `row_hashes` of the same elements.

    A negative line ends a record; `lengths` int32 [n] says how many words of a record count.
    """
    n = lines.shape[0]
    out = np.empty((n, 2), np.uint64)
    if lengths is None:
        lengths = np.full(n, ALL, np.int32)
    HASHERS[values.dtype.char][1](_table(values), lines if lines.ndim == 2 else lines[:, None], lengths, out)
    return out


def _table(values: np.ndarray) -> np.ndarray:
    """Return values as [rows, n], in one piece."""
    if values.ndim == 2 and values.flags.c_contiguous:
        return values
    return np.ascontiguousarray(values).reshape(values.shape[0], -1)


def hex_of(pair: np.ndarray) -> str:
    """Return a hash's 32 hexadecimal digits."""
    return f"{int(pair[0]):016x}{int(pair[1]):016x}"
