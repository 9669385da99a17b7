"""One group's products in window_tiles.py: sixteen weight rows with up to eight activation rows, one tensor-core product.

Numbers are those of lifted.py.  A thread holds the rows r and r + 8 of the weights, and two activation rows: four sums.
Does not know: how weights are staged.
"""

import numpy as np

from strata.cuda.machine.addresses import shared_two_floats, shared_two_words, shared_word
from strata.cuda.machine.seam import Target, fma, jit, mma16, mma32, mul
from strata.cuda.packed.lifted import LIFTED, PER_ROW, group_number, row_scales
from strata.cuda.packed.readers import reader_of
from strata.cuda.packed.tile_parts import NOTHING, ZERO
from strata.formats.contract import WeightFormat

N_HALVES = 2


def group_products(form: WeightFormat, target: Target):
    """Build `unpack(ignored, own_at, group)`, `gather(own, source, values)` and `multiply(...)`: scales, their distribution, one group's products."""
    reader = reader_of(form)
    word, unpack_scales, bias = reader.word, reader.scales, reader.bias
    split_scales, has_offset = form.split_scales, form.has_offset
    whole, part = mma32(target), mma16(target)
    uses_sums = has_offset or bias != 0
    spread, number = row_scales(form), group_number(form)

    @jit
    def gather(own, source, values):
        """values float32 [2 PER_ROW]: d, offset, s0, and s1 or -LIFT s0, of this thread's rows, from the lanes that unpacked them."""
        for half in range(N_HALVES):
            spread(own, np.int32(source + 8 * half), values, PER_ROW * half)

    @jit
    def add_row(values, half, ca, cb, ea, eb, xa, xb, sa, sb, lanes):
        v, at = PER_ROW * half, 2 * half
        la = fma(mul(values[v], xa), number(values, v, ca, ea), lanes[at])
        lb = fma(mul(values[v], xb), number(values, v, cb, eb), lanes[at + 1])
        if has_offset:
            la = fma(mul(values[v + 1], xa), sa, la)
            lb = fma(mul(values[v + 1], xb), sb, lb)
        lanes[at], lanes[at + 1] = la, lb

    @jit
    def multiply(rows_at, behind, group, j, codes_at, scales_at, sums_at, values, words, lanes):
        """rows_at + behind[half]: the blocks of this thread's rows; codes_at, scales_at, sums_at: its word of the codes, its two rows' marks."""
        for half in range(N_HALVES):
            words[2 * half] = word(NOTHING, rows_at + behind[half], group, j)
            words[2 * half + 1] = word(NOTHING, rows_at + behind[half], group, j + 4)
        b0, b1 = np.int32(shared_word(codes_at)), np.int32(shared_word(codes_at + 16))
        xa, xb = shared_two_floats(scales_at)
        ca = cb = LIFTED
        sa = sb = ZERO
        if uses_sums:
            ia, ib = shared_two_words(sums_at)
            if has_offset:
                sa, sb = np.float32(ia), np.float32(ib)
            if bias != 0:
                ca, cb = np.int32(LIFTED - bias * ia), np.int32(LIFTED - bias * ib)
        e0 = e1 = e2 = e3 = LIFTED
        if split_scales:
            c0, c1, c2, c3 = part(words[0], words[2], b0, LIFTED, LIFTED, LIFTED, LIFTED)
            e0, e1, e2, e3 = part(words[1], words[3], b1, LIFTED, LIFTED, LIFTED, LIFTED)
        else:
            c0, c1, c2, c3 = whole(words[0], words[2], words[1], words[3], b0, b1, ca, cb, ca, cb)
        add_row(values, 0, c0, c1, e0, e1, xa, xb, sa, sb, lanes)
        add_row(values, 1, c2, c3, e2, e3, xa, xb, sa, sb, lanes)

    return unpack_scales, gather, multiply
