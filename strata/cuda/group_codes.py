"""Activation codes made where the values are: one group of 32 values, one value per thread of a warp.

The arrays are those of the products: codes int8 [rows, n] in the order of the values and again in turned order (see
readers.py: byte 4 j + i of a half is its value 4 i + j), scales float32 and sums int32 [rows, n / 32], all flat.  The rules
are `numerics.codes`; a span is 32 values.  Does not know: rows, products.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.cuda.on_cuda import code_of, magnitude, scale_of
from strata.cuda.seam import jit
from strata.cuda.warps import largest_int, sum_int


@dataclass(frozen=True, slots=True, eq=False)
class CodedRows:
    """Device arrays that a kernel fills beside its float32 output; shapes in the module's docstring."""

    codes: Any
    turned: Any
    scales: Any
    sums: Any

    @property
    def arrays(self) -> tuple:
        """The four arrays in the order in which kernels take them."""
        return self.codes, self.turned, self.scales, self.sums


@jit
def turned_place(i):
    """Where value i of a group lies in turned order."""
    return (i & 16) | ((i & 3) << 2) | ((i >> 2) & 3)


@jit
def code_group(value, lane, place, codes, turned, scales, sums):
    """Code the 32 values of a warp as group `place` = row * groups + group; every thread takes part."""
    dx, inverse = scale_of(largest_int(magnitude(value)))
    code = code_of(value, inverse)
    total = sum_int(code)
    at = 32 * np.int64(place)
    codes[at + lane] = np.int8(code)
    turned[at + turned_place(lane)] = np.int8(code)
    if lane == 0:
        scales[place], sums[place] = dx, total
