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
IS_PLAIN, IS_FLOAT, IS_HALF = 0, 1, 2
KINDS = {
    np.dtype(kind).char: (np.dtype(word), rule)
    for kind, word, rule in (
        (np.float32, np.uint32, IS_FLOAT), (np.uint16, np.uint16, IS_HALF), (np.int32, np.uint32, IS_PLAIN),
        (np.int64, np.uint32, IS_PLAIN), (np.int8, np.uint8, IS_PLAIN),
    )
}
"""By the character of a values' type: the type of its words, and which rule holds."""


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


@jit
def rule_of(kind):
    return FLOAT if kind == IS_FLOAT else (HALF if kind == IS_HALF else PLAIN)


@kernel
def hash_rows(words, kind, out):
    """Hash rows: words unsigned [rows, n]; out uint64 [rows, 2]."""
    rule = rule_of(kind)
    for row in range(words.shape[0]):
        out[row, 0], out[row, 1] = hash_elements(words[row], rule, 0)


@kernel
def hash_lines(words, kind, lines, lengths, out):
    """Hash records: record i is words[lines[i, 0]], words[lines[i, 1]], ... up to a negative line, cut at lengths[i] elements."""
    n, rule = words.shape[1], rule_of(kind)
    for i in range(lines.shape[0]):
        a = b = np.uint64(0)
        for j in range(lines.shape[1]):
            left = lengths[i] - j * n
            if lines[i, j] < 0 or left <= 0:
                break
            part = words[lines[i, j]] if left >= n else words[lines[i, j], :left]
            more_a, more_b = hash_elements(part, rule, j * n)
            a, b = a + more_a, b + more_b
        out[i, 0], out[i, 1] = a, b


def row_hashes(values: np.ndarray) -> np.ndarray:
    """Return uint64 [rows, 2] of values [rows, ...]; every row's trailing dimensions are flattened."""
    word, kind = KINDS[values.dtype.char]
    n_rows = values.shape[0]
    out = np.empty((n_rows, 2), np.uint64)
    hash_rows(np.ascontiguousarray(values).reshape(n_rows, -1).view(word), kind, out)
    return out


def line_hashes(values: np.ndarray, lines: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """Return uint64 [n, 2] of the records at lines [n] or [n, k] of values; equal to `row_hashes` of the same elements.

    A negative line ends a record; `lengths` int32 [n] says how many elements of a record count.
    """
    words, kind = words_of(values)
    table = lines if lines.ndim == 2 else lines[:, None]
    if lengths is None:
        lengths = np.full(table.shape[0], table.shape[1] * words.shape[1], np.int32)
    out = np.empty((table.shape[0], 2), np.uint64)
    hash_lines(words, kind, table, lengths, out)
    return out


def words_of(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Return (words unsigned [rows, n], the kind of rule) of float32, half bits in uint16, int8, int32 or int64 values."""
    word, kind = KINDS[values.dtype.char]
    return np.ascontiguousarray(values).reshape(values.shape[0], -1).view(word), kind


def hex_of(pair: np.ndarray) -> str:
    """Return a hash's 32 hexadecimal digits."""
    return f"{int(pair[0]):016x}{int(pair[1]):016x}"
