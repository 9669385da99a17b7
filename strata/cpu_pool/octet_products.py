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
from strata.cpu_pool.tiles import kept_scales
from strata.formats.contract import WeightFormat
from strata.numerics.cpu import jit

NOTHING = np.int32(0)


def build_meet(form: WeightFormat, reader: OctetReader, products: ByteProducts):
    """Compile `meet(octet, page, lanes)`, the lanes with one octet's products added, and `meet_four`, from a tile.

    meet_four(unpacked, p, q, r, s, a, b, c, d): the octet that `tiles.keep_octet` stored at `unpacked` with the pages at
    p, q, r, s: the lanes a, b, c, d with its products added.  All places are addresses.
    """
    if reader.is_signed:
        (one, four), minus_bias = products.signed(), np.int32(-products.signed_bias)
    else:
        (one, four), minus_bias = products.small(reader.largest), np.int32(-reader.bias)
    split_scales, has_offset, has_scales = form.split_scales, form.has_offset, reader.has_scales
    first_sums = FIRST_SUMS if split_scales else SUMS

    @jit
    def start_first(page):
        return load(page + first_sums) * minus_bias

    @jit
    def start_second(page):
        return load(page + SECOND_SUMS) * minus_bias if split_scales else splat(NOTHING)

    @jit
    def finish(first, second, d, s0, s1, offset, page, lanes):
        if split_scales:
            exact = s0 * first + s1 * second
        else:
            exact = s0 * (first + second) if has_scales else first + second
        scales = load_floats(page + SCALES)
        lanes = fma(d * scales, to_floats(exact), lanes)
        if has_offset:
            lanes = fma(offset * scales, to_floats(load(page + SUMS)), lanes)
        return lanes

    @jit
    def meet(octet, page, lanes):
        (w0, w1, w2, w3, w4, w5, w6, w7), d, s0, s1, offset = octet
        first = one(start_first(page), w0, w1, w2, w3, page)
        second = one(start_second(page), w4, w5, w6, w7, page + SECOND_HALF)
        return finish(first, second, d, s0, s1, offset, page, lanes)

    @jit
    def meet_four(unpacked, p, q, r, s, a, b, c, d):
        p1, q1, r1, s1 = four(start_first(p), start_first(q), start_first(r), start_first(s), unpacked, p, q, r, s)
        p2, q2, r2, s2 = four(
            start_second(p), start_second(q), start_second(r), start_second(s),
            unpacked + SECOND_HALF, p + SECOND_HALF, q + SECOND_HALF, r + SECOND_HALF, s + SECOND_HALF,
        )
        scales, first_scale, second_scale, offsets = kept_scales(unpacked)
        a = finish(p1, p2, scales, first_scale, second_scale, offsets, p, a)
        b = finish(q1, q2, scales, first_scale, second_scale, offsets, q, b)
        c = finish(r1, r2, scales, first_scale, second_scale, offsets, r, c)
        d = finish(s1, s2, scales, first_scale, second_scale, offsets, s, d)
        return a, b, c, d

    return meet, meet_four
