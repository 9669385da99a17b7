"""How a tile keeps a format's octets: as an instruction set's products for several rows want them.

Does not know: rows, pages.
"""

from dataclasses import replace

from strata.cpu_pool.instruction_sets import ByteProducts
from strata.cpu_pool.lane_memory import store, store_floats
from strata.cpu_pool.octets.contract import OctetReader
from strata.cpu_pool.tiles import FIRST_SCALES, OFFSETS, SCALES, SECOND_SCALES, keep_words
from strata.formats.contract import WeightFormat
from strata.numerics.cpu import jit


def build_keep(form: WeightFormat, reader: OctetReader, products: ByteProducts):
    """Compile `keep(octet, at)`: store what `kept_reader(reader).unpack` returns, as `products` want it, at an address."""
    keep_these = keep_words
    if reader.is_signed:
        keep_these = products.keep_signed if reader.levels is None else products.build_keep_levels(reader.levels)
    split_scales, has_offset, has_scales = form.split_scales, form.has_offset, reader.has_scales

    @jit
    def keep(octet, at):
        words, d, s0, s1, offset = octet
        keep_these(words, at)
        store_floats(at + SCALES, d)
        if has_scales:
            store(at + FIRST_SCALES, s0)
        if split_scales:
            store(at + SECOND_SCALES, s1)
        if has_offset:
            store_floats(at + OFFSETS, offset)

    return keep


def kept_reader(reader: OctetReader) -> OctetReader:
    """Return the reader of what a tile keeps: of codes, where weights are levels from a table."""
    return reader if reader.levels is None else replace(reader, unpack=reader.unpack_codes)
