"""One octet of weights meets one page: the step that every product of rows is made of.

For the group of each lane, in the contract's order (`strata.host.products` says the same with plain loops):

    exact = s0 * dot(weights 0..15) + s1 * dot(weights 16..31)                  int32, below 2^24 in magnitude
    lane  = fma(d * dx, float(exact), lane)
    lane  = fma(offset * dx, float(sum of codes), lane)                         formats with an offset

A dot product of biased weights is too large by bias * (sum of codes): sums start at minus that.  Does not know: memory
layouts of weights, rows.
"""

import numpy as np

from strata.cpu_pool.instruction_sets import ByteProducts
from strata.cpu_pool.lane_memory import load, load_floats
from strata.cpu_pool.lanes import fma, splat, to_floats
from strata.cpu_pool.octets.contract import OctetReader
from strata.cpu_pool.pages import FIRST_SUMS, SCALES, SECOND_HALF, SECOND_SUMS, SUMS
from strata.formats.contract import WeightFormat
from strata.numerics.cpu import jit

NOTHING = np.int32(0)


def build_meet(form: WeightFormat, reader: OctetReader, products: ByteProducts):
    """Compile `meet(octet, page, lanes)`: the eight lanes with one octet's products added; page is an address."""
    if reader.is_signed:
        add_sixteen, minus_bias = products.signed(), np.int32(-products.signed_bias)
    else:
        add_sixteen, minus_bias = products.small(reader.largest), np.int32(-reader.bias)
    split_scales, has_offset = form.split_scales, form.has_offset

    @jit
    def exact_products(words, s0, s1, page):
        w0, w1, w2, w3, w4, w5, w6, w7 = words
        if split_scales:
            first = add_sixteen(load(page + FIRST_SUMS) * minus_bias, w0, w1, w2, w3, page)
            second = add_sixteen(load(page + SECOND_SUMS) * minus_bias, w4, w5, w6, w7, page + SECOND_HALF)
            return s0 * first + s1 * second
        first = add_sixteen(load(page + SUMS) * minus_bias, w0, w1, w2, w3, page)
        return s0 * (first + add_sixteen(splat(NOTHING), w4, w5, w6, w7, page + SECOND_HALF))

    @jit
    def meet(octet, page, lanes):
        words, d, s0, s1, offset = octet
        scales = load_floats(page + SCALES)
        lanes = fma(d * scales, to_floats(exact_products(words, s0, s1, page)), lanes)
        if has_offset:
            lanes = fma(offset * scales, to_floats(load(page + SUMS)), lanes)
        return lanes

    return meet
