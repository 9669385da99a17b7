"""Keys and values of a split in shared memory as their formats' codes: where they lie, reads of a few values at a time, dot products.

Keys lie as key_reads.py describes (pieces of 16 bytes that change places), values as they are in the cells; int8 scales are widened
where they are fetched.  The values are those of host/cells.py.  Does not know: who fetches, softmax.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strata.cuda.attention.attention_parts import SPLIT
from strata.cuda.attention.cells import INT8_GROUP
from strata.cuda.attention.key_reads import cell_reader
from strata.cuda.machine.seam import fma, half, jit, load_four_floats, load_two_words, load_u16, load_word, mul

FORMATS = ("f16", "int8")
"""Formats whose keys and values of a split fit into shared memory together."""
LOW_HALF = np.uint32(0xFFFF)
BYTE = 8


@dataclass(frozen=True, slots=True)
class StagedReader:
    """A key passes in `rounds` of `per_round` eights of values, after which places repeat: their offsets are constants of the code.

    `keys(shared, round_, cell, eight, part, out, at)`: out[at : at + 4] = values 8 eight + 4 part of a round and the next three;
    `pair(shared, cell, dim)`: values dim and dim + 1 of a value vector, dim even.
    """

    rounds: int
    per_round: int
    keys: Callable
    pair: Callable


def _halves(row_bytes, turn, values_byte):
    n_eights = turn + 1
    round_bytes = 16 * n_eights

    @jit
    def four(shared, byte, out, at):
        a, b = load_two_words(shared, np.int64(byte))
        first, second = np.uint32(a), np.uint32(b)
        out[at], out[at + 1] = half(first & LOW_HALF), half(first >> np.uint32(16))
        out[at + 2], out[at + 3] = half(second & LOW_HALF), half(second >> np.uint32(16))

    @jit
    def keys(shared, round_, cell, eight, part, out, at):
        four(shared, cell * row_bytes + round_ * round_bytes + 8 * part + 16 * (eight ^ (cell & turn)), out, at)

    @jit
    def pair(shared, cell, dim):
        both = np.uint32(load_word(shared, np.int64(values_byte + cell * row_bytes + 2 * dim)))
        return half(both & LOW_HALF), half(both >> np.uint32(16))

    return StagedReader(row_bytes // round_bytes, n_eights, keys, pair)


def _codes(row_bytes, turn, values_byte, n_scales, scales_at):
    n_eights = 2 * (turn + 1)
    round_bytes = 16 * (turn + 1)

    @jit
    def scale_of(shared, kind, cell, i):
        return shared[scales_at + (kind * SPLIT + cell) * n_scales + i // INT8_GROUP]

    @jit
    def four(shared, byte, factor, out, at):
        word = load_word(shared, np.int64(byte))
        for i in range(4):
            out[at + i] = mul(np.float32(np.int8(word >> (BYTE * i))), factor)

    @jit
    def keys(shared, round_, cell, eight, part, out, at):
        byte = cell * row_bytes + round_ * round_bytes + 4 * part + 8 * (eight & 1) + 16 * ((eight >> 1) ^ (cell & turn))
        four(shared, byte, scale_of(shared, 0, cell, 8 * (round_ * n_eights + eight)), out, at)

    @jit
    def pair(shared, cell, dim):
        both, factor = load_u16(shared, np.int64(values_byte + cell * row_bytes + dim)), scale_of(shared, 1, cell, dim)
        return mul(np.float32(np.int8(both)), factor), mul(np.float32(np.int8(both >> BYTE)), factor)

    return StagedReader(row_bytes // round_bytes, n_eights, keys, pair)


@jit
def _no_more(shared, round_, cell, part, queries_byte, values, sums):
    """The end of a chain of steps."""
    return


def dot_steps(size: int, heads: int, read: StagedReader, eight: int = 0):
    """Build `step(...)`: eights `eight` .. of a round, each written out so that offsets are constants.

    step(shared, round_, cell, part, queries_byte, values, sums): sums[4 h :] go on, four lanes of head h's dot product with the
    cell.  values float32 [4].
    """
    if eight == read.per_round:
        return _no_more
    keys, following = read.keys, dot_steps(size, heads, read, eight + 1)

    @jit
    def step(shared, round_, cell, part, queries_byte, values, sums):
        keys(shared, round_, cell, eight, part, values, 0)
        for h in range(heads):
            q0, q1, q2, q3 = load_four_floats(shared, np.int64(queries_byte + 4 * h * size + 32 * eight))
            s = 4 * h
            sums[s] = fma(q0, values[0], sums[s])
            sums[s + 1] = fma(q1, values[1], sums[s + 1])
            sums[s + 2] = fma(q2, values[2], sums[s + 2])
            sums[s + 3] = fma(q3, values[3], sums[s + 3])
        following(shared, round_, cell, part, queries_byte, values, sums)

    return step


class StagedLayout:
    """Where a split's keys, values and their scales lie, in floats of shared memory, for shapes with `kv` and `size`; queries follow."""

    __slots__ = ()

    @property
    def row_floats(self) -> int:
        return 4 * cell_reader(self.kv, self.size).pieces

    @property
    def n_scales(self) -> int:
        """Scales of a vector."""
        return self.size // INT8_GROUP if self.kv == "int8" else 0

    @property
    def values_at(self) -> int:
        """Floats before the values: the keys."""
        return SPLIT * self.row_floats

    @property
    def scales_at(self) -> int:
        """Floats before the scales of keys, then of values."""
        return 2 * SPLIT * self.row_floats

    @property
    def queries_at(self) -> int:
        return self.scales_at + 2 * SPLIT * self.n_scales


def staged_reader(shape: StagedLayout) -> StagedReader:
    """Return the reader for a shape."""
    reader = cell_reader(shape.kv, shape.size)
    places = (16 * reader.pieces, reader.turn, 4 * shape.values_at)
    return _codes(*places, shape.n_scales, shape.scales_at) if shape.kv == "int8" else _halves(*places)
