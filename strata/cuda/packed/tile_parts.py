"""The inner parts of the tile kernels: one group's products.

Numbers are those of lifted.py.  Does not know: matrices, experts, how a stage got into shared memory.
"""

import numpy as np

from strata.cuda.machine.addresses import shared_float, shared_two_words, shared_word
from strata.cuda.machine.seam import Target, fma, jit, mma16, mma32, mul, shuffle_int
from strata.cuda.packed.lifted import LIFTED, PER_ROW, group_number, row_scales
from strata.cuda.packed.staging import staging_of
from strata.cuda.packed.tile_words import tile_reader_of
from strata.cuda.packed.tiles import Layout, Tile
from strata.formats.contract import WeightFormat
from strata.numerics.orders import EIGHT

ZERO = np.float32(0.0)
NOTHING = np.int32(0)


def lift_of(tile: Tile):
    """Build `lifted(thread)`: four times LIFTED; where a thread has registers enough by way of an exchange with oneself, for the compiler to keep them."""

    @jit
    def kept(thread):
        return shuffle_int(LIFTED, thread), shuffle_int(LIFTED, thread), shuffle_int(LIFTED, thread), shuffle_int(LIFTED, thread)

    @jit
    def plain(thread):
        return LIFTED, LIFTED, LIFTED, LIFTED

    return kept if tile.min_blocks == 1 else plain


def group_products(form: WeightFormat, tile: Tile, layout: Layout, target: Target):
    """Build `unpack(ignored, own_at, group)`, `gather(...)` and `multiply(...)`: scales, their distribution, one group's products."""
    reader = tile_reader_of(form)
    two, adjacent = reader.two, reader.adjacent
    split_scales, has_offset = form.split_scales, form.has_offset
    whole, part = mma32(target), mma16(target)
    bands, columns, code_pitch, n_halves = tile.bands, tile.columns, layout.code_pitch, 2 * tile.bands
    spread, number = row_scales(form), group_number(form)
    at_once, mark_pitch, sums_at = min(columns, tile.side_by_side), layout.mark_pitch, 4 * EIGHT * staging_of(form, tile.units).units

    @jit
    def gather(own, more, first_source, values):
        """Fetch the scales of this thread's rows from the threads that unpacked them; `more`: those of rows from 32 on."""
        for half in range(n_halves):
            spread(own if half < 4 else more, np.int32(first_source + 8 * (half & 3)), values, PER_ROW * half)

    @jit
    def add_row(values, half, ca, cb, ea, eb, xa, xb, sa, sb, lanes, at):
        """Two outputs: one output row, activation rows a and b."""
        v = PER_ROW * half
        a, b = number(values, v, ca, ea), number(values, v, cb, eb)
        la, lb = fma(mul(values[v], xa), a, lanes[at]), fma(mul(values[v], xb), b, lanes[at + 1])
        if has_offset:
            la, lb = fma(mul(values[v + 1], xa), sa, la), fma(mul(values[v + 1], xb), sb, lb)
        lanes[at], lanes[at + 1] = la, lb

    @jit
    def operands(column, codes_at, marks_at):
        """This thread's two words of a column's codes, and the scales and sums of its two rows."""
        if adjacent:
            b0, b1 = shared_two_words(codes_at + 8 * column * code_pitch)
        else:
            b0 = np.int32(shared_word(codes_at + 8 * column * code_pitch))
            b1 = np.int32(shared_word(codes_at + (8 * column * code_pitch + 16)))
        first = marks_at + 8 * column * mark_pitch
        xa, xb = shared_float(first), shared_float(first + mark_pitch)
        if has_offset:
            na, nb = np.int32(shared_word(first + sums_at)), np.int32(shared_word(first + (mark_pitch + sums_at)))
            return b0, b1, xa, xb, np.float32(na), np.float32(nb)
        return b0, b1, xa, xb, ZERO, ZERO

    @jit
    def multiply_column(column, codes_at, marks_at, values, words, same, lanes, first_lane):
        b0, b1, xa, xb, sa, sb = operands(column, codes_at, marks_at)
        for band in range(bands):
            w, at = 4 * band, first_lane + 4 * (column * bands + band)
            l0, l1, l2, l3 = e0, e1, e2, e3 = same
            if split_scales:
                c0, c1, c2, c3 = part(words[w], words[w + 2], b0, l0, l1, l2, l3)
                e0, e1, e2, e3 = part(words[w + 1], words[w + 3], b1, l0, l1, l2, l3)
            else:
                c0, c1, c2, c3 = whole(words[w], words[w + 2], words[w + 1], words[w + 3], b0, b1, l0, l1, l2, l3)
            add_row(values, 2 * band, c0, c1, e0, e1, xa, xb, sa, sb, lanes, at)
            add_row(values, 2 * band + 1, c2, c3, e2, e3, xa, xb, sa, sb, lanes, at + 2)

    @jit
    def multiply(rows_at, behind, group, j, codes_at, marks_at, count, values, words, same, lanes, first_lane):
        """rows_at + behind[half]: the blocks of this thread's rows; codes_at, marks_at: this thread's words of column 0, and its two rows' marks."""
        for half in range(n_halves):
            words[2 * half], words[2 * half + 1] = two(NOTHING, rows_at + behind[half], group, j)
        for begin in range(0, columns, at_once):
            if columns == at_once or 8 * begin < count:
                for beside in range(at_once):
                    multiply_column(begin + beside, codes_at, marks_at, values, words, same, lanes, first_lane)

    return reader.scales, gather, multiply
