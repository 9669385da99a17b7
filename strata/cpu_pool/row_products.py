"""Products of quantised weight rows with coded activation rows, in vectors, at the speed of memory.

The kernel does what `strata.host.products.coded_product` does, bit by bit, with pages (`pages`) in place of code rows.
An expert with one entry or two unpacks an octet, meets the pages, and forgets it: all in registers.  An expert with more
unpacks a column of a tile, one octet of each of eight rows; two of the octets then meet the pages of four entries at a time,
whose lanes wait in memory for the next column.  So each page is fetched once for eight rows, and neither the pages of a
column (384 bytes an entry) nor the tile need more than a first-level cache.  Where four does not divide a count the last
page stands in, with lanes that nobody reads.  Work is split over (expert, output row).

Weights are asked for before they are needed: `AHEAD_BYTES` for one entry or two; with more, `AHEAD_OCTETS` in each row (in the
next tile where the row ends), a few lines between two meetings, so that memory is read all the time.
Does not know: tiers, threads.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.fork import fork
from strata.cpu_pool.instruction_sets import byte_products
from strata.cpu_pool.kept_octets import build_keep, kept_reader
from strata.cpu_pool.lane_memory import address_of, load_floats, load_word, on_stack, prefetch, store_float, store_floats
from strata.cpu_pool.lane_moves import sum_lanes
from strata.cpu_pool.lanes import splat_float
from strata.cpu_pool.octet_products import build_meet
from strata.cpu_pool.octets.contract import OCTET_WEIGHTS, octet_bytes
from strata.cpu_pool.octets.endings import build_unpack_end
from strata.cpu_pool.octets.table import octet_reader
from strata.cpu_pool.pages import LINE_BYTES, PAGE_BYTES, VECTOR_BYTES, first_line, row_bytes_of
from strata.cpu_pool.tiles import ENTRY_LANES_BYTES, TILE_ROWS, UNPACKED_BYTES
from strata.formats.contract import GROUP
from strata.formats.table import FORMATS
from strata.numerics.cpu import jit, kernel

ZERO = np.float32(0.0)
LARGEST_OCTET_BYTES = max(octet_bytes(form) for form in FORMATS.values())
AHEAD_BYTES, AHEAD_OCTETS = 4096, 2
BLOCK_ENTRIES = 64
"""Entries whose lanes are kept at a time: 16 KiB."""

GRAIN_PRODUCTS = 131072
"""Products of a weight and a code per piece of work: a few microseconds."""


def _build_row_readers(form, reader, kept, meet, keep):
    """Compile the ways through a weight row: `one_product(at, row, page)`, `two_products(at, row, p0, p1)`,
    `unpack_column(at, column, row, row_bytes, n_rows, tile)`.

    row: (whole octets, bytes behind them, address behind the tensor, address of a spare octet); at, page, tile: addresses.
    kept: the reader of what `keep(octet, at)` stores.
    """
    unpack, step, can_end_inside = reader.unpack, octet_bytes(form), form.block_weights < OCTET_WEIGHTS
    unpack_end = build_unpack_end(form, reader)
    unpack_kept, unpack_kept_end = kept.unpack, build_unpack_end(form, kept)

    @jit
    def unpack_soon(at):
        for line in range(0, step, LINE_BYTES):
            prefetch(at + AHEAD_BYTES + line)
        return unpack(at)

    @jit
    def one_product(at, row, page):
        n_octets, n_rest_bytes, end, spare = row
        lanes = splat_float(ZERO)
        for _ in range(n_octets):
            lanes = meet(unpack_soon(at), page, lanes)
            at += step
            page += PAGE_BYTES
        if can_end_inside and n_rest_bytes:
            lanes = meet(unpack_end(at, n_rest_bytes, end, spare), page, lanes)
        return sum_lanes(lanes)

    @jit
    def two_products(at, row, p0, p1):
        n_octets, n_rest_bytes, end, spare = row
        a = b = splat_float(ZERO)
        for _ in range(n_octets):
            octet = unpack_soon(at)
            a, b = meet(octet, p0, a), meet(octet, p1, b)
            at += step
            p0 += PAGE_BYTES
            p1 += PAGE_BYTES
        if can_end_inside and n_rest_bytes:
            octet = unpack_end(at, n_rest_bytes, end, spare)
            a, b = meet(octet, p0, a), meet(octet, p1, b)
        return sum_lanes(a), sum_lanes(b)

    @jit
    def unpack_column(at, column, row, row_bytes, n_rows, tile):
        """Unpack octet `column` of n_rows rows; at: where the first row's octet lies."""
        n_octets, n_rest_bytes, end, spare = row
        for here in range(tile, tile + n_rows * UNPACKED_BYTES, UNPACKED_BYTES):
            if not can_end_inside or column < n_octets:
                keep(unpack_kept(at), here)
            else:
                keep(unpack_kept_end(at, n_rest_bytes, end, spare), here)
            at += row_bytes

    return one_product, two_products, unpack_column


@jit
def _row_of(entry_rows, entry):
    """The activation row of an entry, from int32 at an address."""
    return np.int64(load_word(entry_rows + 4 * entry))


@jit
def _four_pages(entry, end, entry_rows, page_0, pages_bytes):
    """The pages of four entries from `entry` on; that of the last one, `end`, stands for those past it."""
    second, third = entry + 1 if entry + 1 < end else end, entry + 2 if entry + 2 < end else end
    fourth = entry + 3 if entry + 3 < end else end
    p, q = page_0 + _row_of(entry_rows, entry) * pages_bytes, page_0 + _row_of(entry_rows, second) * pages_bytes
    return p, q, page_0 + _row_of(entry_rows, third) * pages_bytes, page_0 + _row_of(entry_rows, fourth) * pages_bytes


@jit
def row_scratch_bytes(n_groups):
    """Bytes of scratch that `expert_rows` takes for rows of n_groups groups."""
    return LARGEST_OCTET_BYTES + LINE_BYTES + TILE_ROWS * UNPACKED_BYTES + BLOCK_ENTRIES * ENTRY_LANES_BYTES


@cache
def expert_rows(type_id: int, instructions: str):
    """Compile `rows(begin, end, weights, entries, pages, out, scratch)`: output rows begin .. end - 1 of one expert's entries.

    weights: (address of the matrix, address behind what may be read); entries: (first, last, address of int32 rows of all
    entries); pages: (address of the first page, groups of a row); out: (address of float32 [entries, n_out], n_out); scratch:
    address of `row_scratch_bytes`.  No arrays: nothing here is counted.
    """
    form = FORMATS[type_id]
    reader, step = octet_reader(form.name), octet_bytes(form)
    products = byte_products(instructions)
    meet, meet_block = build_meet(form, reader, products)
    keep = build_keep(form, reader, products)
    one_product, two_products, unpack_column = _build_row_readers(form, reader, kept_reader(reader), meet, keep)
    block_groups, block_bytes = form.block_weights // GROUP, form.block_bytes

    @jit
    def meet_column(tile, n_rows, first, last, entry_rows, page_0, pages_bytes, lanes, soon, row_bytes):
        """One octet of each row of a tile meets the pages of entries first .. last - 1; soon: the octet of the first row to ask for."""
        for entry in range(first, last, 4):
            pages = _four_pages(entry, last - 1, entry_rows, page_0, pages_bytes)
            here = lanes + (entry - first) * ENTRY_LANES_BYTES
            for t in range(0, n_rows, 2):
                if entry == first:
                    for line in range(0, step, LINE_BYTES):
                        prefetch(soon + t * row_bytes + line)
                        prefetch(soon + (t + 1) * row_bytes + line)
                u = tile + t * UNPACKED_BYTES
                meet_block(u, u + UNPACKED_BYTES if t + 1 < n_rows else u, pages, here + t * VECTOR_BYTES)

    @jit
    def with_several(begin, end, at, row, row_bytes, entries, page_0, pages_bytes, to, n_out, tile):
        """The rows at `at`, tile by tile."""
        start, stop, entry_rows = entries
        lanes, n_columns = tile + TILE_ROWS * UNPACKED_BYTES, pages_bytes // PAGE_BYTES
        for first in range(start, stop, BLOCK_ENTRIES):
            last = first + BLOCK_ENTRIES if first + BLOCK_ENTRIES < stop else stop
            for n in range(begin, end, TILE_ROWS):
                n_rows = TILE_ROWS if n + TILE_ROWS < end else end - n
                for place in range(0, (last - first + 3) // 4 * 4 * ENTRY_LANES_BYTES, VECTOR_BYTES):
                    store_floats(lanes + place, splat_float(ZERO))
                for column in range(n_columns):
                    here = at + (n - begin) * row_bytes + column * step
                    soon = here + AHEAD_OCTETS * step + ((TILE_ROWS - 1) * row_bytes if column + AHEAD_OCTETS >= n_columns else 0)
                    unpack_column(here, column, row, row_bytes, n_rows, tile)
                    meet_column(tile, n_rows, first, last, entry_rows, page_0 + column * PAGE_BYTES, pages_bytes, lanes, soon, row_bytes)
                for entry in range(first, last):
                    for t in range(n_rows):
                        total = sum_lanes(load_floats(lanes + (entry - first) * ENTRY_LANES_BYTES + t * VECTOR_BYTES))
                        store_float(to + 4 * (entry * n_out + n + t), total)

    @jit
    def rows(begin, end, weights, entries, pages, out, scratch):
        (matrix, behind), (first, last, entry_rows), (page_0, n_groups), (to, n_out) = weights, entries, pages, out
        row_bytes, pages_bytes = n_groups // block_groups * block_bytes, row_bytes_of(n_groups)
        row = row_bytes // step, row_bytes % step, behind, scratch
        at = matrix + begin * row_bytes
        if last - first == 1:
            page = page_0 + _row_of(entry_rows, first) * pages_bytes
            for t in range(begin, end):
                store_float(to + 4 * (first * n_out + t), one_product(at + (t - begin) * row_bytes, row, page))
        elif last - first == 2:
            p0, p1 = page_0 + _row_of(entry_rows, first) * pages_bytes, page_0 + _row_of(entry_rows, first + 1) * pages_bytes
            for t in range(begin, end):
                a, b = two_products(at + (t - begin) * row_bytes, row, p0, p1)
                store_float(to + 4 * (first * n_out + t), a)
                store_float(to + 4 * (first * n_out + n_out + t), b)
        else:
            tile = (scratch + step + LINE_BYTES - 1) & -LINE_BYTES
            with_several(begin, end, at, row, row_bytes, entries, page_0, pages_bytes, to, n_out, tile)

    return rows


def build_product(rows, scratch_bytes, grain_of):
    """Return the kernel of `row_product` whose output rows `rows` computes, with scratch of its own, in pieces of `grain_of` items.

    An item is (listed expert, output row).
    """

    @jit
    def body(begin, end, arguments):
        raw, expert_bytes, _, n_groups, experts, starts, entry_rows, pages, out = arguments
        n_out, scratch, behind = out.shape[1], on_stack(scratch_bytes(n_groups)), address_of(raw) + raw.size
        while begin < end:
            i, n = begin // n_out, begin % n_out
            n_rows = end - begin if end - begin < n_out - n else n_out - n
            weights, entries = (address_of(raw) + experts[i] * expert_bytes, behind), (starts[i], starts[i + 1], address_of(entry_rows))
            rows(n, n + n_rows, weights, entries, (first_line(pages), n_groups), (address_of(out), n_out), scratch)
            begin += n_rows

    @kernel
    def run(control, raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, pages, out):
        grain = grain_of(experts.size, n_groups, entry_rows.size)
        arguments = (raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, pages, out)
        fork(control, body, experts.size * out.shape[1], grain, arguments)

    return run


@jit
def row_grain(n_experts, n_groups, n_entries):
    """Items of a piece of work: whole tiles where experts have several entries."""
    grain = 1 + GRAIN_PRODUCTS // (n_groups * GROUP * n_entries // n_experts)
    return grain if n_entries <= 2 * n_experts else (grain + TILE_ROWS - 1) // TILE_ROWS * TILE_ROWS


@cache
def row_product(type_id: int, instructions: str):
    """Return the kernel for int8 activations against a format, for an instruction set with byte products.

    kernel(control, raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, pages, out): raw uint8, one
    dimension; experts int32 [n]; starts int32 [n+1]; entry_rows int32 [entries]; pages a buffer of rows of n_groups
    groups; out float32 [entries, n_out].  The entries of the i-th listed expert are starts[i] .. starts[i+1]-1, at least one.
    """
    return build_product(expert_rows(type_id, instructions), row_scratch_bytes, row_grain)
