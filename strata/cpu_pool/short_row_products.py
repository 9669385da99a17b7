"""Products of short quantised rows: rows of 1, 2 or 4 groups share an octet.

What `row_products` does for longer rows.  Rows lie one after the other, so an octet read at a row's start holds 8, 4 or 2
of them, group by group; a page is spread so that every row in the octet meets the same groups.  A row of so few groups has
one product in each of its first lanes and +0 in the others; no lane is -0 (`octets.endings`), so the eight-lane tree is

    l0      l0 + l1      (l0 + l2) + (l1 + l3)

Work is split over (expert, output row).  Does not know: tiers, threads.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.fork import fork
from strata.cpu_pool.instruction_sets import byte_products
from strata.cpu_pool.lane_memory import address_of, keep_alive, load, load_float, store, store_floats
from strata.cpu_pool.lane_moves import mover, swap_lanes, swap_pairs
from strata.cpu_pool.lanes import as_floats, as_words, splat_float
from strata.cpu_pool.octet_products import build_meet
from strata.cpu_pool.octets.contract import octet_bytes
from strata.cpu_pool.octets.endings import build_unpack_end
from strata.cpu_pool.octets.table import octet_reader
from strata.cpu_pool.pages import GROUPS, LINE_BYTES, PAGE_BYTES, VECTOR_BYTES, first_line
from strata.formats.contract import GROUP
from strata.formats.table import FORMATS
from strata.numerics.cpu import jit, kernel

ZERO = np.float32(0.0)
BLOCK_ENTRIES = 64
"""Entries whose spread pages are made at a time: they stay in a first-level cache."""
GRAIN_PRODUCTS = 131072
repeat_lane, repeat_pair, repeat_quad = mover(*[0] * 8), mover(*[0, 1] * 4), mover(*[0, 1, 2, 3] * 2)


def shares_octets(type_id: int, n_groups: int) -> bool:
    """Whether rows of n_groups groups of a format are short: whole blocks, several rows in an octet."""
    return n_groups in (1, 2, 4) and n_groups * GROUP % FORMATS[type_id].block_weights == 0


@jit
def _spread_page(page, n_groups, to):
    """Copy a page with its first n_groups groups over and over."""
    for at in range(0, PAGE_BYTES, VECTOR_BYTES):
        vector = load(page + at)
        if n_groups == 1:
            store(to + at, repeat_lane(vector, vector))
        elif n_groups == 2:
            store(to + at, repeat_pair(vector, vector))
        else:
            store(to + at, repeat_quad(vector, vector))


@jit
def _sums(lanes, n_groups):
    """The sum of each row in its first lane."""
    words = as_words(lanes)
    if n_groups == 4:
        lanes = lanes + as_floats(swap_pairs(words, words))
        words = as_words(lanes)
    return lanes + as_floats(swap_lanes(words, words)) if n_groups > 1 else lanes


@cache
def short_row_body(type_id: int, instructions: str):
    """Compile `body(begin, end, arguments)` for `fork`, as `row_products.row_body`, for rows that `shares_octets`."""
    form = FORMATS[type_id]
    reader, step = octet_reader(form.name), octet_bytes(form)
    unpack, unpack_end = reader.unpack, build_unpack_end(form, reader)
    meet, _ = build_meet(form, reader, byte_products(instructions))

    @jit
    def meet_block(out, n, n_rows, first, last, at, row_bytes, n_groups, end, spare, spread, sums):
        """Fill out[first:last, n : n + n_rows] from the rows at `at` and spread pages; addresses, sums a vector's place."""
        n_together = GROUPS // n_groups
        for done in range(0, n_rows, n_together):
            n_here = n_together if n_rows - done >= n_together else n_rows - done
            begin = at + done * row_bytes
            octet = unpack(begin) if n_here == n_together else unpack_end(begin, n_here * row_bytes, end, spare)
            for entry in range(first, last):
                lanes = meet(octet, spread + (entry - first) * PAGE_BYTES, splat_float(ZERO))
                store_floats(sums, _sums(lanes, n_groups))
                for r in range(n_here):
                    out[entry, n + done + r] = load_float(sums + 4 * n_groups * r)

    @jit
    def body(begin, end, arguments):
        raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, pages, out = arguments
        n_out = out.shape[1]
        buffer = np.zeros(step + VECTOR_BYTES + 2 * LINE_BYTES + BLOCK_ENTRIES * PAGE_BYTES, np.uint8)
        spread = first_line(buffer)
        sums = spread + BLOCK_ENTRIES * PAGE_BYTES
        spare = sums + VECTOR_BYTES
        while begin < end:
            i, n = begin // n_out, begin % n_out
            n_rows = end - begin if end - begin < n_out - n else n_out - n
            at = address_of(raw) + experts[i] * expert_bytes + n * row_bytes
            for first in range(starts[i], starts[i + 1], BLOCK_ENTRIES):
                last = first + BLOCK_ENTRIES if first + BLOCK_ENTRIES < starts[i + 1] else starts[i + 1]
                for entry in range(first, last):
                    _spread_page(first_line(pages) + entry_rows[entry] * PAGE_BYTES, n_groups, spread + (entry - first) * PAGE_BYTES)
                meet_block(out, n, n_rows, first, last, at, row_bytes, n_groups, address_of(raw) + raw.size, spare, spread, sums)
            begin += n_rows
        keep_alive(buffer)

    return body


@jit
def short_row_grain(n_experts, n_groups, n_entries):
    """Items of a piece of work."""
    return GROUPS * (1 + GRAIN_PRODUCTS // (GROUPS * (n_groups * GROUP * n_entries // n_experts)))


@cache
def short_row_product(type_id: int, instructions: str):
    """Return the kernel for rows that `shares_octets`; arguments as those of `row_products.row_product`'s kernel."""
    body = short_row_body(type_id, instructions)

    @kernel
    def run(control, raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, pages, out):
        grain = short_row_grain(experts.size, n_groups, entry_rows.size)
        arguments = (raw, expert_bytes, row_bytes, n_groups, experts, starts, entry_rows, pages, out)
        fork(control, body, experts.size * out.shape[1], grain, arguments)

    return run
