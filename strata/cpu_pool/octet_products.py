"""One octet of weights meets one page: the step that every product of rows is made of.

For the group of each lane, in the contract's order (`strata.host.products` says the same with plain loops):

    exact = s0 * dot(weights 0..15) + s1 * dot(weights 16..31)                  int32, below 2^24 in magnitude
    lane  = fma(d * dx, float(exact), lane)
    lane  = fma(offset * dx, float(sum of codes), lane)                         formats with an offset

A dot product of biased weights is too large by bias * (sum of codes): sums start at minus that, or it is added.
Does not know: memory layouts of weights, rows.
"""

import numpy as np

from strata.cpu_pool.instruction_sets import ByteProducts
from strata.cpu_pool.lane_memory import load, load_floats, store_floats
from strata.cpu_pool.lanes import fma, splat, to_floats
from strata.cpu_pool.octets.contract import OctetReader
from strata.cpu_pool.pages import FIRST_SUMS, SCALES, SECOND_HALF, SECOND_SUMS, SUMS, VECTOR_BYTES
from strata.cpu_pool.tiles import ENTRY_LANES_BYTES, FIRST_SCALES, KEPT_BIAS, OFFSETS, SECOND_SCALES
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


@inlined
def _scaled(scale, totals):
    a, b, c, d = totals
    return scale * a, scale * b, scale * c, scale * d


@inlined
def _plus(totals, others):
    (a, b, c, d), (e, f, g, h) = totals, others
    return a + e, b + f, c + g, d + h


def build_meet(form: WeightFormat, reader: OctetReader, products: ByteProducts):
    """Compile `meet(octet, page, lanes)`, the lanes with one octet's products added, and `meet_block`, from a tile.

    meet_block(u, v, pages, lanes): the octets that `kept_octets` stored at u and v with four entries' pages; adds the products to
    the lanes of u's row with the first entry, at `lanes`, and to those of v's, the vector behind; the next entry's are
    `ENTRY_LANES_BYTES` on.  All places are addresses.
    """
    one, both = products.signed() if reader.is_signed else products.small(reader.largest)
    split_scales, has_offset, has_scales = form.split_scales, form.has_offset, reader.has_scales
    first, second = _build_starts(products.signed_bias if reader.is_signed else reader.bias, split_scales)
    minus_kept_bias = np.int32(-(KEPT_BIAS if reader.is_signed else reader.bias))
    first_bytes, first_sums = (SECOND_HALF, FIRST_SUMS) if split_scales else (2 * SECOND_HALF, SUMS)

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
    def without_bias(totals, pages, sums):
        """Four totals, less what their weights' bias added; sums: which sums of codes of a page."""
        a, b, c, d = totals
        if minus_kept_bias:
            p, q, r, s = pages
            a, b = a + load(p + sums) * minus_kept_bias, b + load(q + sums) * minus_kept_bias
            c, d = c + load(r + sums) * minus_kept_bias, d + load(s + sums) * minus_kept_bias
        return a, b, c, d

    @inlined
    def finish_four(exact, unpacked, pages, lanes):
        (a, b, c, d), (p, q, r, s) = exact, pages
        scale, offset = load_floats(unpacked + SCALES), load_floats(unpacked + OFFSETS)
        store_floats(lanes, finish(a, scale, offset, p, load_floats(lanes)))
        store_floats(lanes + ENTRY_LANES_BYTES, finish(b, scale, offset, q, load_floats(lanes + ENTRY_LANES_BYTES)))
        store_floats(lanes + 2 * ENTRY_LANES_BYTES, finish(c, scale, offset, r, load_floats(lanes + 2 * ENTRY_LANES_BYTES)))
        store_floats(lanes + 3 * ENTRY_LANES_BYTES, finish(d, scale, offset, s, load_floats(lanes + 3 * ENTRY_LANES_BYTES)))

    @inlined
    def meet_block(u, v, pages, lanes):
        ours, others = both(u, v, pages, first_bytes)
        ours, others = without_bias(ours, pages, first_sums), without_bias(others, pages, first_sums)
        if has_scales:
            ours, others = _scaled(load(u + FIRST_SCALES), ours), _scaled(load(v + FIRST_SCALES), others)
        if split_scales:
            p, q, r, s = pages
            more, too = both(u + SECOND_HALF, v + SECOND_HALF, (p + SECOND_HALF, q + SECOND_HALF, r + SECOND_HALF, s + SECOND_HALF), SECOND_HALF)
            more, too = without_bias(more, pages, SECOND_SUMS), without_bias(too, pages, SECOND_SUMS)
            ours, others = _plus(ours, _scaled(load(u + SECOND_SCALES), more)), _plus(others, _scaled(load(v + SECOND_SCALES), too))
        finish_four(ours, u, pages, lanes)
        finish_four(others, v, pages, lanes + VECTOR_BYTES)

    return meet, meet_block
