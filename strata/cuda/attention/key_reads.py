"""How attention reads cells: keys in pieces of 16 bytes through shared memory, values one by one.

A format's pieces hold consecutive values of one head's vector.  In shared memory piece p of cell c lies at place p xor (c and
turn) of the cell's row, so that threads that read the same piece of different cells spread over the banks.  The values are those
of host/cells.py: f16 and f32 exactly, int8 as code * scale, rounded once.  Does not know: scores, softmax.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from strata.cuda.attention.cells import CELL_FORMATS, INT8_GROUP
from strata.cuda.machine.seam import from_bits, half, jit, load_four_words, load_u16, load_word, mul

LOW_HALF = np.uint32(0xFFFF)
BYTE = 8


@dataclass(frozen=True, slots=True)
class CellReader:
    """One format for vectors of one size.

    `pieces` of 16 bytes a vector; `unpack(shared, at, factor, values, first)`: values[first:] = the `per_piece` values of the
    piece at byte `at` of a shared array; `factor(scales, vector, i)`: the scale of value i; `value(codes, scales, vector, i)`: value i of a vector.
    """

    pieces: int
    per_piece: int
    unpack: Callable
    factor: Callable
    value: Callable

    @property
    def turn(self) -> int:
        """Mask by which pieces change places: 7, or what the number of pieces allows."""
        return min(8, self.pieces & -self.pieces) - 1


def _f32(size):
    @jit
    def unpack(shared, at, factor, values, first):
        a, b, c, d = load_four_words(shared, at)
        values[first], values[first + 1] = from_bits(a), from_bits(b)
        values[first + 2], values[first + 3] = from_bits(c), from_bits(d)

    @jit
    def factor(scales, vector, i):
        return np.float32(1)

    @jit
    def value(codes, scales, vector, i):
        return from_bits(np.int32(load_word(codes, 4 * (vector * size + i))))

    return unpack, factor, value


def _f16(size):
    @jit
    def two(word, values, first):
        word = np.uint32(word)
        values[first], values[first + 1] = half(word & LOW_HALF), half(word >> np.uint32(16))

    @jit
    def unpack(shared, at, factor, values, first):
        a, b, c, d = load_four_words(shared, at)
        two(a, values, first)
        two(b, values, first + 2)
        two(c, values, first + 4)
        two(d, values, first + 6)

    @jit
    def factor(scales, vector, i):
        return np.float32(1)

    @jit
    def value(codes, scales, vector, i):
        return half(load_u16(codes, 2 * (vector * size + i)))

    return unpack, factor, value


def _int8(size):
    n_groups = size // INT8_GROUP

    @jit
    def four(word, factor, values, first):
        for i in range(4):
            values[first + i] = mul(np.float32(np.int8(word >> (BYTE * i))), factor)

    @jit
    def unpack(shared, at, factor, values, first):
        a, b, c, d = load_four_words(shared, at)
        four(a, factor, values, first)
        four(b, factor, values, first + 4)
        four(c, factor, values, first + 8)
        four(d, factor, values, first + 12)

    @jit
    def factor(scales, vector, i):
        return half(load_u16(scales, 2 * (vector * n_groups + i // INT8_GROUP)))

    @jit
    def value(codes, scales, vector, i):
        return mul(np.float32(codes[vector * size + i]), factor(scales, vector, i))

    return unpack, factor, value


def piece_place(begin: int, row_bytes: int, turn: int):
    """Build `place_of(cell, piece)`: bytes of shared memory before a piece, in rows of row_bytes from byte `begin` on."""

    @jit
    def place_of(cell, piece):
        return begin + cell * row_bytes + 16 * (piece ^ (cell & turn))

    return place_of


BUILDERS = {"f32": _f32, "f16": _f16, "int8": _int8}


@cache
def cell_reader(name: str, size: int) -> CellReader:
    """Return the reader of a format for vectors of `size` values."""
    value_bytes = CELL_FORMATS[name].value_bytes
    return CellReader(size * value_bytes // 16, 16 // value_bytes, *BUILDERS[name](size))
