"""Products of many activation rows with quantised weights: int8 tensor cores in the order of the contract.

A block computes a tile of output rows x activation rows.  Group g of 32 weights belongs to lane g mod 8, and warp w of a
block's set of eight computes lane w alone: one tensor-core product per group gives the exact integers, and each output's
chain of fused multiply-adds runs in that warp's registers in ascending g.  At the end the eight warps' lanes meet in the
eight-lane tree.  So a row's bits are those of the dp4a kernel and of the host, whatever the tile, its neighbours or its size.

The integer is read off the accumulator's bits: products start at MAGIC's bits and stay below 2^22, so the float with those
bits is MAGIC + integer, and fma(., s, -MAGIC * s) is the exact scaled integer (below 2^24, see the formats).

Shapes as in rows.py; `tiles` of listed experts: tile_listed, tile_first int32 [n_tiles].  Does not know: routers, layers.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.readers import reader_of
from strata.cuda.seam import (
    Target, add, copies, fma, from_bits, jit, kernel, launch_dependents, load_two_floats, load_two_words, load_word,
    mma16, mma32, mul, shuffle_float, wait_for_dependency,
)
from strata.cuda.staging import staging_of
from strata.formats.table import FORMATS
from strata.numerics.orders import EIGHT

ZERO = np.float32(0.0)
MAGIC = np.float32(12582912.0)
"""1.5 * 2^23: one unit in the last place is 1."""
MINUS_MAGIC = np.float32(-12582912.0)
MAGIC_BITS = np.int32(0x4B400000)
CODE_PAD = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """A tiling: `sets` of eight warps, each with 16 * `bands` output rows, times 8 * `columns` activation rows.

    `units` of 256 weights per stage, `stages` in flight, `min_blocks` a multiprocessor should hold.
    """

    bands: int
    columns: int
    sets: int
    units: int
    stages: int
    min_blocks: int

    @property
    def n_outputs(self) -> int:
        return 16 * self.bands * self.sets

    @property
    def n_rows(self) -> int:
        return 8 * self.columns

    @property
    def n_threads(self) -> int:
        return 256 * self.sets


WINDOW = Tile(bands=1, columns=1, sets=1, units=2, stages=4, min_blocks=4)
"""For windows of up to eight rows."""
CHUNK = Tile(bands=2, columns=8, sets=1, units=1, stages=2, min_blocks=2)
"""For prompt chunks."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets inside a stage of shared memory, and the sizes of a stage and of a block's whole dynamic memory."""

    pitch: int
    codes_at: int
    code_pitch: int
    scales_at: int
    sums_at: int
    stage_bytes: int
    shared_bytes: int


def layout_of(type_id: int, tile: Tile) -> Layout:
    """Return how a tile's stages lie in shared memory."""
    staging = staging_of(FORMATS[type_id], tile.units)
    code_pitch = 256 * tile.units + CODE_PAD
    codes_at = tile.n_outputs * staging.pitch
    scales_at = codes_at + tile.n_rows * code_pitch
    sums_at = scales_at + 4 * EIGHT * tile.units * tile.n_rows
    stage_bytes = sums_at + 4 * EIGHT * tile.units * tile.n_rows
    lanes_bytes = 4 * EIGHT * 32 * tile.sets * min(tile.columns, COLUMNS_AT_ONCE) * tile.bands * 4
    return Layout(staging.pitch, codes_at, code_pitch, scales_at, sums_at, stage_bytes, max(tile.stages * stage_bytes, lanes_bytes))


COLUMNS_AT_ONCE = 4
"""Columns of eight rows whose lanes meet in shared memory at once."""


def _dots(reader, split_scales, target):
    """Build `dots(a0, a1, a2, a3, b0, b1, start_a, start_b)`: MAGIC's bits plus the group's integers, two sets if split."""
    whole, part = mma32(target), mma16(target)

    @jit
    def dots(a0, a1, a2, a3, b0, b1, first, second):
        if split_scales:
            return part(a0, a1, b0, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS)
        return whole(a0, a1, a2, a3, b0, b1, first, second, first, second)

    @jit
    def second_dots(a2, a3, b1):
        return part(a2, a3, b1, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS)

    return dots, second_dots


def _copier(form, tile, layout, target):
    """Build `fetch(...)`: the threads of a block copy one stage's weights, codes, scales and sums."""
    staging = staging_of(form, tile.units)
    move = copies(target, tile.stages - 2)
    copy16, copy4 = move.copy16, move.copy4
    per_output, per_row = tile.n_threads // tile.n_outputs, tile.n_threads // tile.n_rows
    pieces, stage_bytes, n_codes = staging.pieces, staging.stage_bytes, 16 * tile.units
    n_groups_staged, n_rows = EIGHT * tile.units, tile.n_rows
    pitch, code_pitch = layout.pitch, layout.code_pitch
    codes_at, scales_at, sums_at = layout.codes_at, layout.scales_at, layout.sums_at
    uses_sums = form.has_offset or reader_of(form).bias != 0

    @jit
    def fetch(shared, slot, stage, thread, raw, start, end, row, n_groups, codes, scales, sums):
        at = start + np.int64(stage) * stage_bytes
        base = at & np.int64(-16)
        stop = min(at + stage_bytes, end)
        n_pieces = np.int32((stop - base + 15) >> 4)
        to = np.int32(slot + (thread // per_output) * pitch)
        for first in range(0, pieces, per_output):
            piece = np.int32(first + thread % per_output)
            if piece < n_pieces:
                copy16(shared, to + 16 * piece, raw, base + 16 * piece)
        own, mine = thread // per_row, thread % per_row
        first_group = np.int32(stage * n_groups_staged)
        n_here = np.int32(n_groups - first_group)
        source = np.int64(row) * n_groups + first_group
        for first in range(0, n_codes, per_row):
            piece = np.int32(first + mine)
            if piece < 2 * n_here and piece < n_codes:
                copy16(shared, slot + codes_at + own * code_pitch + 16 * piece, codes, 32 * source + 16 * piece)
        for first in range(0, n_groups_staged, per_row):
            g = np.int32(first + mine)
            if g < n_here and g < n_groups_staged:
                copy4(shared, slot + scales_at + 4 * (g * n_rows + own), scales, 4 * (source + g))
                if uses_sums:
                    copy4(shared, slot + sums_at + 4 * (g * n_rows + own), sums, 4 * (source + g))

    return fetch, move.commit, move.wait


def _group_products(form, tile, layout, target):
    """Build `multiply(...)`: one warp adds one group of its lane to its chains."""
    reader = reader_of(form)
    word, unpack_scales, bias = reader.word, reader.scales, reader.bias
    split_scales, has_offset = form.split_scales, form.has_offset
    dots, second_dots = _dots(reader, split_scales, target)
    bands, columns, n_rows = tile.bands, tile.columns, tile.n_rows
    code_pitch = layout.code_pitch
    n_halves = 2 * bands

    @jit
    def add_column(lanes, at, c0, c1, c2, c3, e0, e1, e2, e3, values, band, xa, xb, sa, sb):
        """Four outputs of a column: rows r and r + 8 of a band, activation rows a and b."""
        for half in range(2):
            v = 8 * (2 * band + half)
            d, s0, m0 = values[v], values[v + 1], values[v + 2]
            da, db = mul(d, xa), mul(d, xb)
            ca, cb = (c0, c1) if half == 0 else (c2, c3)
            a, b = fma(from_bits(ca), s0, m0), fma(from_bits(cb), s0, m0)
            if split_scales:
                s1, m1 = values[v + 3], values[v + 4]
                ea, eb = (e0, e1) if half == 0 else (e2, e3)
                a, b = add(a, fma(from_bits(ea), s1, m1)), add(b, fma(from_bits(eb), s1, m1))
            la, lb = fma(da, a, lanes[at + 2 * half]), fma(db, b, lanes[at + 2 * half + 1])
            if has_offset:
                offset = values[v + 5]
                la, lb = fma(mul(offset, xa), sa, la), fma(mul(offset, xb), sb, lb)
            lanes[at + 2 * half], lanes[at + 2 * half + 1] = la, lb

    @jit
    def gather_scales(shared, own_at, group, thread, values):
        """Each thread unpacks one output row's scales; every thread gets those of its rows (8 values a row)."""
        d, s0, s1, offset = unpack_scales(shared, own_at, group)
        f0, f1 = np.float32(s0), np.float32(s1)
        for half in range(n_halves):
            source, v = np.int32((thread >> 2) + 8 * half), 8 * half
            values[v] = shuffle_float(d, source)
            values[v + 1] = shuffle_float(f0, source)
            values[v + 2] = mul(MINUS_MAGIC, values[v + 1])
            if split_scales:
                values[v + 3] = shuffle_float(f1, source)
                values[v + 4] = mul(MINUS_MAGIC, values[v + 3])
            if has_offset:
                values[v + 5] = shuffle_float(offset, source)

    @jit
    def multiply(shared, own_at, row_at, group, thread, codes_at, scales_at, sums_at, count, values, words, lanes):
        gather_scales(shared, own_at, group, thread, values)
        j = thread & 3
        for half in range(n_halves):
            words[2 * half] = word(shared, row_at[half], group, j)
            words[2 * half + 1] = word(shared, row_at[half], group, j + 4)
        for column in range(columns):
            if 8 * column < count:
                at = codes_at + (8 * column + (thread >> 2)) * code_pitch + 4 * j
                b0, b1 = np.int32(load_word(shared, at)), np.int32(load_word(shared, at + 16))
                pair = 4 * (8 * column + 2 * j)
                xa, xb = load_two_floats(shared, scales_at + pair)
                first = second = MAGIC_BITS
                sa = sb = ZERO
                if bias != 0 or has_offset:
                    ia, ib = load_two_words(shared, sums_at + pair)
                    first, second = np.int32(MAGIC_BITS - bias * ia), np.int32(MAGIC_BITS - bias * ib)
                    sa, sb = np.float32(ia), np.float32(ib)
                for band in range(bands):
                    w = 4 * band
                    c0, c1, c2, c3 = dots(words[w], words[w + 2], words[w + 1], words[w + 3], b0, b1, first, second)
                    e0 = e1 = e2 = e3 = MAGIC_BITS
                    if split_scales:
                        e0, e1, e2, e3 = second_dots(words[w + 1], words[w + 3], b1)
                    add_column(lanes, 4 * (column * bands + band), c0, c1, c2, c3, e0, e1, e2, e3, values, band, xa, xb, sa, sb)

    return multiply
