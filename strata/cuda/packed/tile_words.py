"""Weight formats compiled for the tensor cores' operands: two words of a group at once.

`two(raw, at, group, j)` gives the words that thread j of four feeds to one product: words 2 j and 2 j + 1 where `adjacent` is
set, j and j + 4 otherwise.  The activations' two words are chosen alike; an integer sum has no order.  Adjacent words of activations
come in one read.  Formats whose halves of a group share their bytes, or have a sub-scale each, take j and j + 4.  Words are signed
bytes: nothing is left to be corrected by the sum of codes.  `at`, raw, order (`turned`) and `scales` as in readers.py.
Does not know: tiles.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from strata.cuda.machine.addresses import SHARED_SEAM, shared_two_words, shared_word
from strata.cuda.machine.seam import jit, permute_bytes
from strata.cuda.packed.readers import AS_IS, BY_TWO, reader_of
from strata.formats import bytewise
from strata.formats.bytewise import NIBBLES, ONES, PAIRS
from strata.formats.contract import GROUP, WeightFormat
from strata.formats.q4_0 import EIGHTS
from strata.formats.table import by_name


@dataclass(frozen=True, slots=True)
class TileReader:
    """A format's helpers for tensor cores; see the module's docstring."""

    two: Callable
    scales: Callable
    adjacent: bool
    turned: bool


def _q2_0():
    load_u32, minus = SHARED_SEAM.load_u32, bytewise.build(SHARED_SEAM).minus

    @jit
    def two(raw, at, group, j):
        codes = load_u32(raw, at + 2 + 8 * group + 4 * (j >> 1)) >> (4 * (j & 1))
        return minus(codes & PAIRS, ONES), minus((codes >> 2) & PAIRS, ONES)

    return two


def _q4_0():
    """The plain word: the low nibbles of a block's bytes are the first half of the group, the high ones the second."""
    by_words, minus = _by_words(reader_of(by_name("Q4_0")).word, False), bytewise.build(SHARED_SEAM).minus

    @jit
    def two(raw, at, group, j):
        first, second = by_words(raw, at, group, j)
        return minus(np.uint32(first), EIGHTS), minus(np.uint32(second), EIGHTS)

    return two


def _q8_0():
    """Codes lie at 2 mod 4 in every other block: aligned words, joined by byte selection."""

    @jit
    def two(raw, at, group, j):
        first = at + 2
        base, chosen = (first & -4) + 8 * j, BY_TWO if first & 2 else AS_IS
        low, middle, high = shared_word(base), shared_word(base + 4), shared_word(base + 8)
        return np.int32(permute_bytes(low, middle, chosen)), np.int32(permute_bytes(middle, high, chosen))

    return two


def _q4_k():
    @jit
    def two(raw, at, group, j):
        low, high = shared_two_words(at + 16 + 32 * (group >> 1) + 8 * j)
        shift = 4 * (group & 1)
        return np.int32((np.uint32(low) >> shift) & NIBBLES), np.int32((np.uint32(high) >> shift) & NIBBLES)

    return two


def _q5_k():
    @jit
    def joined(codes, bits, group):
        nibbles = (np.uint32(codes) >> (4 * (group & 1))) & NIBBLES
        return np.int32(nibbles | (((np.uint32(bits) >> group) & ONES) << 4))

    @jit
    def two(raw, at, group, j):
        low, high = shared_two_words(at + 48 + 32 * (group >> 1) + 8 * j)
        low_bits, high_bits = shared_two_words(at + 16 + 8 * j)
        return joined(low, low_bits, group), joined(high, high_bits, group)

    return two


def _by_words(word, adjacent: bool):
    @jit
    def two(raw, at, group, j):
        first = 2 * j if adjacent else j
        return word(raw, at, group, first), word(raw, at, group, first + (1 if adjacent else 4))

    return two


SHORTER = {"Q2_0": _q2_0, "Q4_0": _q4_0, "Q8_0": _q8_0, "Q4_K": _q4_k, "Q5_K": _q5_k}


@cache
def tile_reader_of(form: WeightFormat) -> TileReader:
    """Return the tile reader of a format."""
    reader, shorter = reader_of(form), SHORTER.get(form.name)
    adjacent = shorter not in (None, _q4_0) or form.block_weights > GROUP and not form.split_scales
    return TileReader(shorter() if shorter else _by_words(reader.word, adjacent), reader.scales, adjacent, reader.turned)
