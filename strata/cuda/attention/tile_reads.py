"""How tiles of prompt rows read a split's keys, values and queries in shared memory: by address, so that offsets are constants of the code.

A key's row is an odd number of pieces of 16 bytes long, so that eight neighbouring cells' pieces lie in different banks; values lie as they
are in the cells.  A thread of a dot product has two of the eight lanes, `part` says which.  Queries lie so that four floats are a
thread's two lanes in one eight of values and in the next.  The values are those of host/cells.py.  Does not know: who fetches, softmax.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strata.cuda.attention.attention_parts import SPLIT
from strata.cuda.attention.cells import INT8_GROUP
from strata.cuda.attention.key_reads import cell_reader
from strata.cuda.machine.addresses import shared_float, shared_four_floats, shared_half_word, shared_two_words, shared_word
from strata.cuda.machine.seam import fma, half, jit, mul

LOW_HALF = np.uint32(0xFFFF)
BYTE = 8
CELLS = 4
"""Cells whose dot products a thread makes, each with all heads of its team."""
ONE = np.float32(1)


@dataclass(frozen=True, slots=True)
class TileReader:
    """A format's codes in shared memory; `eight_bytes` of them are eight values.

    `two(at, factor)`, `four(at, factor)`: the two or four values at an address; `factor(at)`: what they are multiplied by, `at` the address of
    a scale.
    """

    eight_bytes: int
    two: Callable
    four: Callable
    factor: Callable


def _halves():
    @jit
    def two(at, factor):
        both = np.uint32(shared_word(at))
        return half(both & LOW_HALF), half(both >> np.uint32(16))

    @jit
    def four(at, factor):
        a, b = shared_two_words(at)
        first, second = np.uint32(a), np.uint32(b)
        return half(first & LOW_HALF), half(first >> np.uint32(16)), half(second & LOW_HALF), half(second >> np.uint32(16))

    @jit
    def factor(at):
        return ONE

    return TileReader(16, two, four, factor)


def _codes():
    @jit
    def value(word, i, factor):
        return mul(np.float32(np.int8(word >> (BYTE * i))), factor)

    @jit
    def two(at, factor):
        both = shared_half_word(at)
        return value(both, 0, factor), value(both, 1, factor)

    @jit
    def four(at, factor):
        word = shared_word(at)
        return value(word, 0, factor), value(word, 1, factor), value(word, 2, factor), value(word, 3, factor)

    return TileReader(8, two, four, shared_float)


READERS = {"f16": _halves, "int8": _codes}
FORMATS = tuple(READERS)
"""Formats whose keys and values of a split fit into shared memory together."""


class TileLayout:
    """Where a split's keys, values and their scales lie, in floats of shared memory, for shapes with `kv` and `size`; queries follow."""

    __slots__ = ()

    @property
    def pieces(self) -> int:
        return cell_reader(self.kv, self.size).pieces

    @property
    def key_bytes(self) -> int:
        """From one key to the next."""
        return 16 * (self.pieces | 1)

    @property
    def n_scales(self) -> int:
        """Scales of a vector."""
        return self.size // INT8_GROUP if self.kv == "int8" else 0

    @property
    def values_at(self) -> int:
        return SPLIT * self.key_bytes // 4

    @property
    def scales_at(self) -> int:
        """Floats before the scales of keys, then of values."""
        return self.values_at + SPLIT * 4 * self.pieces

    @property
    def queries_at(self) -> int:
        return self.scales_at + 2 * SPLIT * self.n_scales


@jit
def query_place(i):
    """Where value i of a query lies: [16 values][part][eight of two][lane of two]."""
    return (i & ~14) | ((i & 6) << 1) | ((i >> 2) & 2)


@jit
def _no_heads(at, values, sums):
    """The end of a chain of heads."""
    return


def _sixteen(shape, pair: int, head: int = 0):
    """Build `products(at, values, sums)`: sixteen values of all heads with CELLS cells; sums[2 (heads c + h) + lane]."""
    heads, size = shape.heads, shape.size
    if head == heads:
        return _no_heads
    following, offset = _sixteen(shape, pair, head + 1), 4 * size * head + 64 * pair

    @jit
    def products(at, values, sums):
        q0, q1, q2, q3 = shared_four_floats(at + offset)
        for c in range(CELLS):
            s, v = 2 * (heads * c + head), 4 * c
            sums[s] = fma(q2, values[v + 2], fma(q0, values[v], sums[s]))
            sums[s + 1] = fma(q3, values[v + 3], fma(q1, values[v + 1], sums[s + 1]))
        following(at, values, sums)

    return products


@jit
def _no_more(at, keys, factors, values, sums):
    """The end of a chain of pairs."""
    return


def dot_round(shape, read: TileReader, n_pairs: int, pair: int = 0):
    """Build `go_on(at, keys, factors, values, sums)`: n_pairs sixteens of the dot products of a team's heads with CELLS cells.

    at: address of the round's queries; keys: those of the cells' codes, factors: of each cell; values float32 [4 CELLS].
    """
    if pair == n_pairs:
        return _no_more
    two, following, products = read.two, dot_round(shape, read, n_pairs, pair + 1), _sixteen(shape, pair)
    first, second = 2 * pair * read.eight_bytes, (2 * pair + 1) * read.eight_bytes

    @jit
    def go_on(at, keys, factors, values, sums):
        k0, k1, k2, k3 = keys
        f0, f1, f2, f3 = factors
        values[0], values[1] = two(k0 + first, f0)
        values[2], values[3] = two(k0 + second, f0)
        values[4], values[5] = two(k1 + first, f1)
        values[6], values[7] = two(k1 + second, f1)
        values[8], values[9] = two(k2 + first, f2)
        values[10], values[11] = two(k2 + second, f2)
        values[12], values[13] = two(k3 + first, f3)
        values[14], values[15] = two(k3 + second, f3)
        products(at, values, sums)
        following(at, keys, factors, values, sums)

    return go_on
