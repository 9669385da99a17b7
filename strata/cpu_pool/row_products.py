"""Products of quantised weight rows with coded activation rows, in vectors, at the speed of memory.

The kernel does what `strata.host.products.coded_product` does, bit by bit, with pages (`pages`) in place of code rows.
An expert with one entry or two unpacks an octet, meets the pages, and forgets it: all in registers.  An expert with more
unpacks a tile of its rows once; each octet of the tile then meets the pages of four entries at a time.  The last ones of a count
that four does not divide are taken twice, which writes the same value twice.  Work is split over (expert, output row).

Weights are asked for `AHEAD_BYTES` before they are needed; the rows of a tile are few where entries are, so that memory
is read all the time, and more where a tile is to save reading pages.  Does not know: tiers, threads.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.fork import fork
from strata.cpu_pool.instruction_sets import byte_products
from strata.cpu_pool.lane_memory import address_of, on_stack, prefetch
from strata.cpu_pool.lane_moves import sum_lanes
from strata.cpu_pool.lanes import splat_float
from strata.cpu_pool.octet_products import build_meet
from strata.cpu_pool.octets.contract import OCTET_WEIGHTS, octet_bytes
from strata.cpu_pool.octets.endings import build_unpack_end
from strata.cpu_pool.octets.table import octet_reader
from strata.cpu_pool.pages import LINE_BYTES, PAGE_BYTES, first_line, row_bytes_of
from strata.cpu_pool.tiles import UNPACKED_BYTES, keep_octet
from strata.formats.contract import GROUP
from strata.formats.table import FORMATS
from strata.numerics.cpu import jit, kernel

ZERO = np.float32(0.0)
AHEAD_BYTES = 8192
FEW_ENTRIES, FEW_TILE_ROWS, TILE_ROWS = 8, 2, 8
GRAIN_PRODUCTS = 131072
"""Products of a weight and a code per piece of work: a few microseconds."""


def _build_row_readers(form, reader, meet):
    """Compile the ways through a weight row: `one_product(at, row, page)`, `two_products(at, row, p0, p1)`, `unpack_row(at, row, to)`.

    row: (whole octets, bytes behind them, address behind the tensor, address of a spare octet); at, page, to: addresses.
    """
    unpack, step, can_end_inside = reader.unpack, octet_bytes(form), form.block_weights < OCTET_WEIGHTS
    unpack_end = build_unpack_end(form, reader)

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
    def unpack_row(at, row, to):
        n_octets, n_rest_bytes, end, spare = row
        for _ in range(n_octets):
            keep_octet(unpack_soon(at), to)
            at += step
            to += UNPACKED_BYTES
        if can_end_inside and n_rest_bytes:
            keep_octet(unpack_end(at, n_rest_bytes, end, spare), to)

    return one_product, two_products, unpack_row


def _build_four_products(meet_four):
    """Compile `four_products(unpacked, row_bytes, p, q, r, s)`: an unpacked row with the pages of four rows."""

    @jit
    def four_products(unpacked, row_bytes, p, q, r, s):
        a = b = c = d = splat_float(ZERO)
        for at in range(0, row_bytes, PAGE_BYTES):
            a, b, c, d = meet_four(unpacked + at, p + at, q + at, r + at, s + at, a, b, c, d)
        return sum_lanes(a), sum_lanes(b), sum_lanes(c), sum_lanes(d)

    return four_products


@jit
def _four_entries(first, last):
    """Four entries from `first` on; the last one stands for those past it."""
    end = last - 1
    second = first + 1 if first < end else end
    third = first + 2 if first + 1 < end else end
    return first, second, third, first + 3 if first + 2 < end else end


@cache
def row_body(type_id: int, instructions: str):
    """Compile `body(begin, end, arguments)` for `fork`: the items (listed expert, output row) of `row_product`, its arguments in order."""
    form = FORMATS[type_id]
    reader, step = octet_reader(form.name), octet_bytes(form)
    meet, meet_four = build_meet(form, reader, byte_products(instructions))
    one_product, two_products, unpack_row = _build_row_readers(form, reader, meet)
    four_products = _build_four_products(meet_four)

    @jit
    def with_several(out, n, n_rows, first, last, at, row_bytes, row, tile, page_0, pages_bytes, entry_rows):
        """Fill out[first:last, n : n + n_rows] from the rows at `at`, tile by tile; at, tile, page_0: addresses."""
        most = FEW_TILE_ROWS if last - first <= FEW_ENTRIES else TILE_ROWS
        for begin in range(n, n + n_rows, most):
            end = begin + most if begin + most < n + n_rows else n + n_rows
            for t in range(begin, end):
                unpack_row(at + (t - n) * row_bytes, row, tile + (t - begin) * pages_bytes)
            for entry in range(first, last, 4):
                a, b, c, d = _four_entries(entry, last)
                p0, p1 = page_0 + entry_rows[a] * pages_bytes, page_0 + entry_rows[b] * pages_bytes
                p2, p3 = page_0 + entry_rows[c] * pages_bytes, page_0 + entry_rows[d] * pages_bytes
                for t in range(begin, end):
                    products = four_products(tile + (t - begin) * pages_bytes, pages_bytes, p0, p1, p2, p3)
                    out[a, t], out[b, t], out[c, t], out[d, t] = products

    @jit
    def body(begin, end, arguments):
        raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, pages, out = arguments
        n_out, pages_bytes = out.shape[1], row_bytes_of(n_groups)
        buffer = on_stack(TILE_ROWS * pages_bytes + LINE_BYTES + step)
        page_0, tile = first_line(pages), (buffer + LINE_BYTES - 1) & -LINE_BYTES
        row = row_bytes // step, row_bytes % step, address_of(raw) + raw.size, tile + TILE_ROWS * pages_bytes
        while begin < end:
            i, n = begin // n_out, begin % n_out
            n_rows = end - begin if end - begin < n_out - n else n_out - n
            first, last = starts[i], starts[i + 1]
            at = address_of(raw) + experts[i] * expert_bytes + n * row_bytes
            if last - first == 1:
                page = page_0 + entry_rows[first] * pages_bytes
                for t in range(n_rows):
                    out[first, n + t] = one_product(at + t * row_bytes, row, page)
            elif last - first == 2:
                p0, p1 = page_0 + entry_rows[first] * pages_bytes, page_0 + entry_rows[first + 1] * pages_bytes
                for t in range(n_rows):
                    out[first, n + t], out[first + 1, n + t] = two_products(at + t * row_bytes, row, p0, p1)
            else:
                with_several(out, n, n_rows, first, last, at, row_bytes, row, tile, page_0, pages_bytes, entry_rows)
            begin += n_rows

    return body


@jit
def row_grain(n_experts, n_groups, n_entries):
    """Items of a piece of work."""
    grain = 1 + GRAIN_PRODUCTS // (n_groups * GROUP * n_entries // n_experts)
    return TILE_ROWS if grain < TILE_ROWS and n_entries > FEW_ENTRIES * n_experts else grain


@cache
def row_product(type_id: int, instructions: str):
    """Return the kernel for int8 activations against a format, for an instruction set with byte products.

    kernel(control, raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, pages, out): raw uint8, one
    dimension; experts int32 [n]; starts int32 [n+1]; entry_rows int32 [entries]; pages a buffer of rows of n_groups
    groups; out float32 [entries, n_out].  The entries of the i-th listed expert are starts[i] .. starts[i+1]-1, at least one.
    """
    body = row_body(type_id, instructions)

    @kernel
    def run(control, raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, pages, out):
        grain = row_grain(experts.size, n_groups, entry_rows.size)
        arguments = (raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, pages, out)
        fork(control, body, experts.size * out.shape[1], grain, arguments)

    return run
