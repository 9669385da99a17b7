"""Coded activation rows as pages: what an octet of weights meets.

A page belongs to one row and one octet (256 values, eight groups of 32): twelve vectors of eight 32-bit lanes, one group
per lane.

    0..7    codes: lane k of vector j holds the int8 codes 4j .. 4j+3 of group k, the first in the low byte
    8       scales, float32
    9, 10   sums of the codes 0..15 and 16..31;  11  of all 32

Groups past the end of a row are zero.  A buffer of pages is int32 [buffer_words(rows, groups)]: the rows' pages one after
the other from the first multiple of 64 bytes on, so that no vector crosses a cache line.  Codes and scales are those of
`numerics.codes`, bit by bit.  Does not know: weights.
"""

import numpy as np

from strata.cpu_pool.fork import fork
from strata.cpu_pool.lane_memory import address_of, load, load_byte, load_floats, load_word, store, store_floats, store_word
from strata.cpu_pool.lane_moves import pack_bytes, swap_lanes, swap_pairs, swap_quads, transpose
from strata.cpu_pool.lanes import as_floats, as_words, choose, first_lanes, larger, reaches, splat, splat_float, to_words
from strata.formats.contract import GROUP
from strata.numerics.codes import LARGEST_CODE, NOT_A_NUMBER, SMALLEST_BITS
from strata.numerics.cpu import jit, kernel
from strata.numerics.functions import INFINITY_BITS, SIGN_MASK, ZERO

GROUPS, VECTOR_BYTES, PAGE_BYTES, LINE_BYTES = 8, 32, 384, 64
SECOND_HALF = 4 * VECTOR_BYTES
SCALES, FIRST_SUMS, SECOND_SUMS, SUMS = (VECTOR_BYTES * vector for vector in (8, 9, 10, 11))
GROUP_BYTES = 4 * GROUP
GRAIN_VALUES = 16384
NOTHING = np.int32(0)
TOP_BITS, EVEN_BYTES, LOW_HALF, SIXTEEN_BIASES = 0x80808080, 0x00FF00FF, 0xFFFF, 16 * 128


def buffer_words(n_rows: int, n_groups: int) -> int:
    """Return the int32 words of a buffer of pages for n_rows rows of n_groups groups."""
    return (n_rows * -(-n_groups // GROUPS) * PAGE_BYTES + LINE_BYTES) // 4


@jit
def row_bytes_of(n_groups):
    """Bytes of one row's pages."""
    return (n_groups + GROUPS - 1) // GROUPS * PAGE_BYTES


@jit
def first_line(array):
    """Address of the first cache line that begins in an array."""
    return (address_of(array) + (LINE_BYTES - 1)) & -LINE_BYTES


@jit
def _eight(at):
    """Eight vectors one after the other."""
    low = load(at), load(at + 32), load(at + 64), load(at + 96)
    return low + (load(at + 128), load(at + 160), load(at + 192), load(at + 224))


@jit
def _largest_of_group(at):
    """Largest magnitudes' bits of 32 floats, eight columns of four."""
    a, b = larger(load(at) & SIGN_MASK, load(at + 32) & SIGN_MASK), larger(load(at + 64) & SIGN_MASK, load(at + 96) & SIGN_MASK)
    return larger(a, b)


@jit
def _largest_of_spans(page, span):
    """Reduce the eight vectors at `page` to one lane per group, then over the lanes that share a scale."""
    a, b, c, d, e, f, g, h = transpose(_eight(page))
    largest = larger(larger(larger(a, b), larger(c, d)), larger(larger(e, f), larger(g, h)))
    if span >= 2 * GROUP:
        largest = larger(largest, swap_lanes(largest, largest))
    if span >= 4 * GROUP:
        largest = larger(largest, swap_pairs(largest, largest))
    if span >= 8 * GROUP:
        largest = larger(largest, swap_quads(largest, largest))
    return largest


@jit
def _scales_of(largest):
    """dx and 127 / a of eight largest magnitudes a, as `numerics.codes.scale_of`."""
    a, nothing = as_floats(largest), splat_float(ZERO)
    codes_something = reaches(largest, SMALLEST_BITS)
    is_unfit = reaches(largest, INFINITY_BITS)
    dx = choose(is_unfit, splat_float(NOT_A_NUMBER), choose(codes_something, a / splat_float(LARGEST_CODE), nothing))
    inverse = choose(is_unfit, nothing, choose(codes_something, splat_float(LARGEST_CODE) / a, nothing))
    return dx, inverse


@jit
def _codes_of(at, inverse):
    """Eight codes of the floats at an address; 0 where the inverse is 0, whatever the floats are."""
    return to_words(choose(as_words(inverse), load_floats(at) * inverse, splat_float(ZERO)))


@jit
def _sum_of_sixteen(w0, w1, w2, w3):
    """Sum of the sixteen int8 of four words, lane by lane: unsigned bytes x + 128 in 16-bit fields, then 16 * 128 less."""
    fields = _byte_fields(w0 ^ TOP_BITS) + _byte_fields(w1 ^ TOP_BITS) + _byte_fields(w2 ^ TOP_BITS) + _byte_fields(w3 ^ TOP_BITS)
    return (fields & LOW_HALF) + (fields >> 16) - SIXTEEN_BIASES


@jit
def _byte_fields(word):
    return (word & EVEN_BYTES) + ((word >> 8) & EVEN_BYTES)


@jit
def _finish_page(page, codes):
    """Store eight vectors of codes and their sums."""
    w0, w1, w2, w3, w4, w5, w6, w7 = codes
    store(page, w0)
    store(page + 32, w1)
    store(page + 64, w2)
    store(page + 96, w3)
    store(page + 128, w4)
    store(page + 160, w5)
    store(page + 192, w6)
    store(page + 224, w7)
    first, second = _sum_of_sixteen(w0, w1, w2, w3), _sum_of_sixteen(w4, w5, w6, w7)
    store(page + FIRST_SUMS, first)
    store(page + SECOND_SUMS, second)
    store(page + SUMS, first + second)


@jit
def _encode_page(at, n_groups, span, page):
    """Fill one page from n_groups groups (at most 8) of floats at `at`; rows of groups stand where codes will."""
    for k in range(GROUPS):
        store(page + k * VECTOR_BYTES, _largest_of_group(at + k * GROUP_BYTES) if k < n_groups else splat(NOTHING))
    dx, inverses = _scales_of(_largest_of_spans(page, span))
    store_floats(page + SCALES, inverses)
    for k in range(n_groups):
        group, inverse = at + k * GROUP_BYTES, as_floats(splat(np.int32(load_word(page + SCALES + 4 * k))))
        a, b = _codes_of(group, inverse), _codes_of(group + 32, inverse)
        c, d = _codes_of(group + 64, inverse), _codes_of(group + 96, inverse)
        store(page + k * VECTOR_BYTES, pack_bytes(a, b, c, d))
    store_floats(page + SCALES, choose(first_lanes(np.int32(n_groups)), dx, splat_float(ZERO)))
    for k in range(n_groups, GROUPS):
        store(page + k * VECTOR_BYTES, splat(NOTHING))
    _finish_page(page, transpose(_eight(page)))


@jit
def encode_rows(begin, end, arguments):
    """Rows begin .. end-1 of `encode_pages`, for a fork; arguments (x, spans, pages)."""
    x, spans, pages = arguments
    n_groups = x.shape[1] // GROUP
    row_bytes, first = row_bytes_of(n_groups), first_line(pages)
    for row in range(begin, end):
        at, page = address_of(x) + row * n_groups * GROUP_BYTES, first + row * row_bytes
        for group in range(0, n_groups, GROUPS):
            n_here = n_groups - group if n_groups - group < GROUPS else GROUPS
            _encode_page(at, n_here, spans[row], page)
            at += GROUPS * GROUP_BYTES
            page += PAGE_BYTES


@jit
def _sum_of_bytes(at, n):
    total = np.int32(0)
    for i in range(n):
        total += np.int32(load_byte(at + i) ^ 128) - np.int32(128)
    return total


@jit
def encode_group(at, page, lane, spare):
    """Fill one lane of a page from the 32 floats at `at`, with a scale of their own, as `encode_rows` does; spare: address of 32 bytes."""
    largest = _largest_of_group(at)
    largest = larger(largest, swap_lanes(largest, largest))
    largest = larger(largest, swap_pairs(largest, largest))
    dx, inverse = _scales_of(larger(largest, swap_quads(largest, largest)))
    store(spare, pack_bytes(_codes_of(at, inverse), _codes_of(at + 32, inverse), _codes_of(at + 64, inverse), _codes_of(at + 96, inverse)))
    first, second, to = _sum_of_bytes(spare, 16), _sum_of_bytes(spare + 16, 16), page + 4 * lane
    for j in range(GROUPS):
        store_word(to + j * VECTOR_BYTES, load_word(spare + 4 * j))
    store_floats(spare, dx)
    store_word(to + SCALES, load_word(spare))
    store_word(to + FIRST_SUMS, np.uint32(first))
    store_word(to + SECOND_SUMS, np.uint32(second))
    store_word(to + SUMS, np.uint32(first + second))


@jit
def clear_lane(page, lane):
    """Zero one lane of a page: a group past the end of its row."""
    for vector in range(PAGE_BYTES // VECTOR_BYTES):
        store_word(page + vector * VECTOR_BYTES + 4 * lane, np.uint32(0))


@kernel
def encode_pages(control, x, spans, pages):
    """Code rows: x float32 [rows, n] contiguous, spans int32 [rows] of 32, 64, 128 or 256 values, pages a buffer."""
    fork(control, encode_rows, x.shape[0], 1 + GRAIN_VALUES // x.shape[1], (x, spans, pages))


@jit
def _pack_page(codes, scales, n_groups, page):
    """Fill one page from int8 codes and float32 scales at two addresses."""
    for k in range(GROUPS):
        store(page + k * VECTOR_BYTES, load(codes + k * GROUP) if k < n_groups else splat(NOTHING))
    for k in range(GROUPS):
        word = load_word(scales + 4 * k) if k < n_groups else np.uint32(0)
        store_word(page + SCALES + 4 * k, word)
    _finish_page(page, transpose(_eight(page)))


@kernel
def pack_pages(codes, scales, pages):
    """Lay out rows that are coded already: codes int8 [rows, n], scales float32 [rows, n / 32], contiguous; pages a buffer."""
    n_groups = scales.shape[1]
    page = first_line(pages)
    for row in range(codes.shape[0]):
        from_codes, from_scales = address_of(codes) + row * n_groups * GROUP, address_of(scales) + row * n_groups * 4
        for group in range(0, n_groups, GROUPS):
            n_here = n_groups - group if n_groups - group < GROUPS else GROUPS
            _pack_page(from_codes + group * GROUP, from_scales + group * 4, n_here, page)
            page += PAGE_BYTES
