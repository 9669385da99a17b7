"""Products of short quantised rows: rows of 1, 2 or 4 groups share an octet.

What `row_products` does for longer rows.  Rows lie one after the other, so an octet read at a row's start holds 8, 4 or 2
of them, group by group; a page is spread so that every row in the octet meets the same groups.  A row of so few groups has
one product in each of its first lanes and +0 in the others; no lane is -0 (`octets.endings`), so the eight-lane tree is

    l0      l0 + l1      (l0 + l2) + (l1 + l3)

Work is split over (expert, output row).  Does not know: tiers, threads.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.instruction_sets import byte_products
from strata.cpu_pool.lane_memory import load, load_float, load_word, store, store_float, store_floats
from strata.cpu_pool.lane_moves import mover, swap_lanes, swap_pairs
from strata.cpu_pool.lanes import as_floats, as_words, splat_float
from strata.cpu_pool.octet_products import build_meet
from strata.cpu_pool.octets.endings import build_unpack_end
from strata.cpu_pool.octets.table import octet_reader
from strata.cpu_pool.pages import GROUPS, LINE_BYTES, PAGE_BYTES, VECTOR_BYTES
from strata.cpu_pool.row_products import LARGEST_OCTET_BYTES, build_product
from strata.formats.contract import GROUP
from strata.formats.table import FORMATS
from strata.numerics.cpu import jit

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


@jit
def short_row_scratch_bytes(n_groups):
    """Bytes of scratch that `expert_short_rows` takes."""
    return LARGEST_OCTET_BYTES + VECTOR_BYTES + 2 * LINE_BYTES + BLOCK_ENTRIES * PAGE_BYTES


@cache
def expert_short_rows(type_id: int, instructions: str):
    """Compile `rows(begin, end, weights, entries, pages, out, scratch)`, as `row_products.expert_rows`, for rows that `shares_octets`."""
    form = FORMATS[type_id]
    reader, block_groups, block_bytes = octet_reader(form.name), form.block_weights // GROUP, form.block_bytes
    unpack, unpack_end = reader.unpack, build_unpack_end(form, reader)
    meet, _ = build_meet(form, reader, byte_products(instructions))

    @jit
    def meet_block(begin, end, at, row_bytes, first, last, n_groups, behind, spare, spread, sums, to, n_out):
        """Output rows begin .. end - 1 of entries first .. last - 1, from weight rows at `at` and spread pages; sums: a vector's place."""
        n_together = GROUPS // n_groups
        for n in range(begin, end, n_together):
            n_here = n_together if end - n >= n_together else end - n
            here = at + (n - begin) * row_bytes
            octet = unpack(here) if n_here == n_together else unpack_end(here, n_here * row_bytes, behind, spare)
            for entry in range(first, last):
                lanes = meet(octet, spread + (entry - first) * PAGE_BYTES, splat_float(ZERO))
                store_floats(sums, _sums(lanes, n_groups))
                for r in range(n_here):
                    store_float(to + 4 * (entry * n_out + n + r), load_float(sums + 4 * n_groups * r))

    @jit
    def rows(begin, end, weights, entries, pages, out, scratch):
        (matrix, behind), (start, stop, entry_rows), (page_0, n_groups), (to, n_out) = weights, entries, pages, out
        row_bytes = n_groups // block_groups * block_bytes
        spread = (scratch + LINE_BYTES - 1) & -LINE_BYTES
        sums = spread + BLOCK_ENTRIES * PAGE_BYTES
        for first in range(start, stop, BLOCK_ENTRIES):
            last = first + BLOCK_ENTRIES if first + BLOCK_ENTRIES < stop else stop
            for entry in range(first, last):
                page = page_0 + np.int64(load_word(entry_rows + 4 * entry)) * PAGE_BYTES
                _spread_page(page, n_groups, spread + (entry - first) * PAGE_BYTES)
            meet_block(begin, end, matrix + begin * row_bytes, row_bytes, first, last, n_groups, behind, sums + VECTOR_BYTES, spread, sums, to, n_out)

    return rows


@jit
def short_row_grain(n_experts, n_groups, n_entries):
    """Items of a piece of work."""
    return GROUPS * (1 + GRAIN_PRODUCTS // (GROUPS * (n_groups * GROUP * n_entries // n_experts)))


@cache
def short_row_product(type_id: int, instructions: str):
    """Return the kernel for rows that `shares_octets`; arguments as those of `row_products.row_product`'s kernel."""
    return build_product(expert_short_rows(type_id, instructions), short_row_scratch_bytes, short_row_grain)
