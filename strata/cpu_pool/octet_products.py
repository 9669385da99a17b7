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
from strata.numerics.cpu import inlined, jit

NOTHING = np.int32(0)


def _build_starts(bias, split_scales):
    """Compile `first(page)` and `second(page)`: what the sums of weights 0..15 (without split scales 0..31) and 16..31 start from."""
    minus_bias, first_sums = np.int32(-bias), FIRST_SUMS if split_scales else SUMS

    @jit
    def first(page):
        return load(page + first_sums) * minus_bias if bias else splat(NOTHING)

    @jit
    def second(page):
        return load(page + SECOND_SUMS) * minus_bias if bias else splat(NOTHING)

    return first, second


def build_meet(form: WeightFormat, reader: OctetReader, products: ByteProducts):
    """Compile `meet(octet, page, lanes)`, the lanes with one octet's products added, and `meet_four`, from a tile.

    meet_four(unpacked, p, q, r, s, a, b, c, d): the octet that `tiles.keep_octet` stored at `unpacked` with the pages at
    p, q, r, s: the lanes a, b, c, d with its products added.  All places are addresses.
    """
    one, four = products.signed() if reader.is_signed else products.small(reader.largest)
    split_scales, has_offset, has_scales = form.split_scales, form.has_offset, reader.has_scales
    first, second = _build_starts(products.signed_bias if reader.is_signed else reader.bias, split_scales)
    first_bytes = SECOND_HALF if split_scales else 2 * SECOND_HALF

    @jit
    def finish(exact, d, offset, page, lanes):
        scales = load_floats(page + SCALES)
        lanes = fma(d * scales, to_floats(exact), lanes)
        if has_offset:
            lanes = fma(offset * scales, to_floats(load(page + SUMS)), lanes)
        return lanes

    @jit
    def meet(octet, page, lanes):
        (w0, w1, w2, w3, w4, w5, w6, w7), d, s0, s1, offset = octet
        if split_scales:
            exact = s0 * one(first(page), w0, w1, w2, w3, page) + s1 * one(second(page), w4, w5, w6, w7, page + SECOND_HALF)
        else:
            exact = one(one(first(page), w0, w1, w2, w3, page), w4, w5, w6, w7, page + SECOND_HALF)
            exact = s0 * exact if has_scales else exact
        return finish(exact, d, offset, page, lanes)

    @inlined
    def exact_four(unpacked, p, q, r, s, s0, s1):
        a, b, c, d = four(first(p), first(q), first(r), first(s), unpacked, p, q, r, s, first_bytes)
        if has_scales:
            a, b, c, d = s0 * a, s0 * b, s0 * c, s0 * d
        if split_scales:
            e, f, g, h = four(
                second(p), second(q), second(r), second(s),
                unpacked + SECOND_HALF, p + SECOND_HALF, q + SECOND_HALF, r + SECOND_HALF, s + SECOND_HALF, SECOND_HALF,
            )
            a, b, c, d = a + s1 * e, b + s1 * f, c + s1 * g, d + s1 * h
        return a, b, c, d

    @inlined
    def meet_four(unpacked, p, q, r, s, a, b, c, d):
        scales, s0, s1, offsets = kept_scales(unpacked)
        e, f, g, h = exact_four(unpacked, p, q, r, s, s0, s1)
        a, b = finish(e, scales, offsets, p, a), finish(f, scales, offsets, q, b)
        c, d = finish(g, scales, offsets, r, c), finish(h, scales, offsets, s, d)
        return a, b, c, d

    return meet, meet_four
