"""A group's integers become floats, where tensor cores made them (tile_parts.py, window_parts.py).

A group's integer, times its sub-scales where it has two, is exact and below 2^24 (see the formats); so is its product with
one sub-scale in float32.  Integers become floats without a conversion: a product starts from the bits of 3 * 2^22, so that its bits
are those of the float 3 * 2^22 + n (|n| < 2^22: 32 products of bytes), and one exact operation takes the constant away again, with
the sub-scale where there is one.  Does not know: tiles, how products are made.
"""

import numpy as np

from strata.cuda.machine.seam import add, fma, from_bits, jit, mul, shuffle_float
from strata.formats.contract import WeightFormat

LIFTED = np.int32(0x4B400000)
MINUS_LIFT = np.float32(-(3 << 22))
"""The bits that a product starts from, and the negative of the float that has them."""
FINE_BLOCK = 64
"""Weights of the largest block that has no sub-scales."""
PER_ROW = 4
"""Floats kept per output row: d, offset, and first and second sub-scale, or one and -LIFT times it (where there are any)."""


def row_scales(form: WeightFormat):
    """Build `spread(own, source, values, v)`: values[v : v + PER_ROW] of the row that thread `source` of the warp unpacked as `own`."""
    split_scales, has_offset = form.split_scales, form.has_offset
    has_scale = form.block_weights > FINE_BLOCK and not split_scales

    @jit
    def spread(own, source, values, v):
        d, s0, s1, offset = own
        values[v] = shuffle_float(d, source)
        if has_offset:
            values[v + 1] = shuffle_float(offset, source)
        if has_scale or split_scales:
            values[v + 2] = shuffle_float(np.float32(s0), source)
        if has_scale:
            values[v + 3] = mul(MINUS_LIFT, values[v + 2])
        if split_scales:
            values[v + 3] = shuffle_float(np.float32(s1), source)

    return spread


def group_number(form: WeightFormat):
    """Build `number(values, v, first, second)`: the group's integer as a float, from the sums of its products, scaled as `spread` left it at v."""
    split_scales = form.split_scales
    has_scale = form.block_weights > FINE_BLOCK and not split_scales

    @jit
    def number(values, v, first, second):
        """Nothing here is ever rounded."""
        if has_scale:
            return fma(from_bits(first), values[v + 2], values[v + 3])
        a = add(from_bits(first), MINUS_LIFT)
        if not split_scales:
            return a
        return fma(add(from_bits(second), MINUS_LIFT), values[v + 3], mul(a, values[v + 2]))

    return number
