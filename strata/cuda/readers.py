"""Weight formats compiled for CUDA, and where a card has a shorter way to the same integers.

A reader's `word(raw, at, group, j)` and `scales(raw, at, group)` are the format's own, compiled with the CUDA seam.  Where
`turned` is set, word j holds weights of another order: byte i of word j (j < 4) is weight 4 i + j of the first half of the
group, of words 4..7 the second half; it meets the turned copy of the activation codes, which has the same order.  `bias` is
what each byte holds too much: the exact dot product is dot(words, codes) - bias * (sum of codes).  Integer sums have no
order, so a result's bits do not depend on either.  Does not know: products, memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from strata.cuda.seam import ALIGNED_SEAM, SEAM, load_word, jit, permute_bytes
from strata.formats.bytewise import PAIRS
from strata.formats.contract import WeightFormat

import numpy as np

AS_IS, BY_TWO = np.uint32(0x3210), np.uint32(0x5432)


@dataclass(frozen=True, slots=True)
class CudaReader:
    """A format's two helpers for CUDA, and the order and bias of its words; see the module's docstring."""

    word: Callable
    scales: Callable
    turned: bool
    bias: int


def _q2_0(scales) -> CudaReader:
    """Two bits a weight: shifting a word of 16 codes gives four of them per step, in turned order."""
    load_u32 = SEAM.load_u32

    @jit
    def word(raw, at, group, j):
        codes = load_u32(raw, at + 2 + 8 * group + 4 * (j >> 2))
        return np.int32((codes >> (2 * (j & 3))) & PAIRS)

    return CudaReader(word, scales, turned=True, bias=1)


def _q8_0(scales) -> CudaReader:
    """Codes lie at 2 mod 4 in every other block: aligned words, joined by byte selection."""

    @jit
    def word(raw, at, group, j):
        first = at + 2
        base = first & -4
        low, high = load_word(raw, base + 4 * j), load_word(raw, base + 4 * j + 4)
        return np.int32(permute_bytes(low, high, BY_TWO if first & 2 else AS_IS))

    return CudaReader(word, scales, turned=False, bias=0)


SHORTER = {"Q2_0": _q2_0, "Q8_0": _q8_0}


@cache
def reader_of(form: WeightFormat) -> CudaReader:
    """Return the reader of a format.

    32-bit fields of a format whose blocks are multiples of four bytes lie at multiples of four; tensors start at one too.
    """
    plain = form.build(SEAM if form.block_bytes % 4 else ALIGNED_SEAM)
    shorter = SHORTER.get(form.name)
    return shorter(plain.scales) if shorter else CudaReader(plain.word, plain.scales, turned=False, bias=0)
