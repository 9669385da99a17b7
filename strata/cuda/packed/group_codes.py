"""Activation codes made where the values are: one group of 32 values, one value per thread of a warp.

The arrays are those of the products: codes int8 [rows, n] in the order of the values and again in turned order (see
readers.py: byte 4 j + i of a half is its value 4 i + j), scales float32 and sums int32 [rows, n / 32], all flat.  The rules
are `numerics.codes`; a span is 32 values.  Does not know: rows, products.
"""

from functools import cache

import numpy as np

from strata.cuda.machine.on_cuda import code_of, magnitude, scale_of
from strata.cuda.machine.seam import Target, jit
from strata.cuda.machine.warps import integers
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
