"""Activation codes made where the values are: one group of 32 values, one value per thread of a warp or four of eight neighbours.

The arrays are those of the products: codes int8 [rows, n] in the order of the values and again in turned order (see
readers.py: byte 4 j + i of a half is its value 4 i + j), scales float32 and sums int32 [rows, n / 32], all flat.  The rules
are `numerics.codes`; a span is 32 values.  Does not know: rows, products.
"""

from functools import cache

import numpy as np

from strata.cuda.machine.on_cuda import code_of, magnitude, scale_of
from strata.cuda.machine.seam import Target, exchange_int, jit, permute_bytes, store_word
from strata.cuda.machine.warps import integers
from strata.cuda.packed.coding import largest_of_eight_threads, sum_of_eight_threads
from strata.cuda.packed.products import Coded


def arrays_of(coded: Coded) -> tuple:
    """Return the four arrays in the order in which kernels take them."""
    return coded.codes, coded.turned, coded.scales, coded.sums


@jit
def turned_place(i):
    """Where value i of a group lies in turned order."""
    return (i & 16) | ((i & 3) << 2) | ((i >> 2) & 3)


@cache
def group_coder(target: Target):
    """Return device helper `code_group(value, lane, place, codes, turned, scales, sums)`.

    It codes the 32 values of a warp as group `place` = row * groups + group; every thread takes part.
    """
    together = integers(target)
    largest, sum_of = together.largest, together.sum

    @jit
    def code_group(value, lane, place, codes, turned, scales, sums):
        dx, inverse = scale_of(largest(magnitude(value)))
        code = code_of(value, inverse)
        total = sum_of(code)
        at = 32 * np.int64(place)
        codes[at + lane] = np.int8(code)
        turned[at + turned_place(lane)] = np.int8(code)
        if lane == 0:
            scales[place], sums[place] = dx, total

    return code_group


@jit
def _turned_word(word, lane):
    """Of the words of four neighbouring threads: byte thread mod 4 of each."""
    word = np.uint32(word)
    other = np.uint32(exchange_int(np.int32(word), np.int32(1)))
    word = permute_bytes(word, other, np.uint32(0x6240) if lane & 1 == 0 else np.uint32(0x3715))
    other = np.uint32(exchange_int(np.int32(word), np.int32(2)))
    return np.int32(permute_bytes(word, other, np.uint32(0x5410) if lane & 2 == 0 else np.uint32(0x3276)))


@jit
def code_fours(a, b, c, d, lane, is_value, place, codes, turned, scales, sums):
    """Code four neighbouring values a thread as group `place`, which eight neighbouring threads have; all 32 of the warp take part."""
    dx, inverse = scale_of(largest_of_eight_threads(max(max(magnitude(a), magnitude(b)), max(magnitude(c), magnitude(d)))))
    first, second, third, fourth = code_of(a, inverse), code_of(b, inverse), code_of(c, inverse), code_of(d, inverse)
    total = sum_of_eight_threads(np.int32(first + second + third + fourth))
    word = np.int32((first & 255) | ((second & 255) << 8) | ((third & 255) << 16) | (fourth << 24))
    turned_word = _turned_word(word, lane)
    if is_value:
        at = 32 * np.int64(place) + 4 * (lane & 7)
        store_word(codes, at, word)
        store_word(turned, at, turned_word)
        if lane & 7 == 0:
            scales[place], sums[place] = dx, total
