"""Row products in vectors against the plain loops: every format, instruction set, row count and geometry, bit by bit."""

import numpy as np
import pytest

from strata.cpu_pool.team import Team
from strata.formats.table import by_name
from tests.unit.cpu_pool.row_cases import (
    ALL, ENDS, GEOMETRIES, OTHERS, ROW_COUNTS, SETS, Weights, Work, dense, fits, formats_with_sets, long_row_products, packed, pages_of, plain_codes,
    plain_products, random_rows, random_weights, same_bits, vector_products,
)
from tests.unit.formats.blocks import n_halves, set_half
from tests.unit.formats.vanishing import vanishing_rows, vanishing_weights

N_OUT = 19
"""Not a multiple of a tile's rows."""

pytestmark = pytest.mark.skipif(not SETS, reason="this CPU has no AVX2: the plain loops are used")
every_set = pytest.mark.parametrize("instructions", ENDS)
every_format = pytest.mark.parametrize("form, instructions", formats_with_sets(ALL))


@pytest.fixture(scope="module")
def control():
    with Team(1) as team:
        yield team.control


@every_format
def test_bits_are_those_of_the_plain_loops_at_every_row_count_and_geometry(form, instructions, control):
    for n_in in (n for n in GEOMETRIES if fits(form, n)):
        weights, x = random_weights(form, n_in, N_OUT), random_rows(max(ROW_COUNTS), n_in)
        codes, pages = plain_codes(control, x), pages_of(control, x)
        for n_rows in ROW_COUNTS:
            work = dense(n_rows)
            expected = plain_products(control, weights, work, codes)
            assert same_bits(vector_products(instructions, control, weights, work, pages), expected), (n_in, n_rows)
            if n_rows in (1, 5):
                assert same_bits(long_row_products(instructions, control, weights, work, pages), expected), (n_in, n_rows)
    assert not same_bits(expected, plain_products(control, weights, work, plain_codes(control, x, 256))), "the comparison must see codes"


@pytest.mark.parametrize("instructions", OTHERS)
@pytest.mark.parametrize("name", ["Q8_0", "Q5_1", "IQ4_NL", "IQ2_XS"])
def test_sets_between_the_best_and_the_least_compute_the_same_bits(name, instructions, control):
    for n_in in (n for n in (64, 256, 640) if fits(by_name(name), n)):
        weights, x = random_weights(by_name(name), n_in, N_OUT), random_rows(9, n_in)
        for n_rows in (1, 9):
            expected = plain_products(control, weights, dense(n_rows), plain_codes(control, x))
            assert same_bits(vector_products(instructions, control, weights, dense(n_rows), pages_of(control, x)), expected)


@pytest.mark.parametrize("form, instructions", formats_with_sets(tuple(form for form in ALL if fits(form, 64))))
def test_short_rows_meet_more_entries_than_are_spread_at_a_time(form, instructions, control):
    weights, x = random_weights(form, 64, N_OUT), random_rows(131, 64)
    expected = plain_products(control, weights, dense(131), plain_codes(control, x))
    assert same_bits(vector_products(instructions, control, weights, dense(131), pages_of(control, x)), expected)


@every_format
def test_experts_with_one_row_and_with_several_stand_side_by_side(form, instructions, control):
    n_in = max(64, form.block_weights)
    weights, x = random_weights(form, n_in, N_OUT, n_experts=6), random_rows(9, n_in)
    experts, sizes = np.array([5, 0, 3, 2], np.int32), (1, 9, 2, 1)
    entry_rows = np.concatenate([np.random.default_rng(n).permutation(9)[:n] for n in sizes]).astype(np.int32)
    work = Work(experts, np.concatenate(([0], np.cumsum(sizes))).astype(np.int32), entry_rows)
    expected = plain_products(control, weights, work, plain_codes(control, x))
    assert same_bits(vector_products(instructions, control, weights, work, pages_of(control, x)), expected)
    others = Work(np.array([5, 1, 3, 2], np.int32), work.starts, entry_rows)
    assert not same_bits(expected, plain_products(control, weights, others, plain_codes(control, x)))


@every_format
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF, 0x55, 0xAA])
def test_the_largest_products_do_not_saturate(form, instructions, byte, control):
    """Bytes that are alike give codes and sub-scales at their ends, -128 in Q8_0 among them; activations are +-127."""
    n_blocks = 2560 // form.block_weights if fits(form, 2560) else 10
    blocks = np.full((3 * n_blocks, form.block_bytes), byte, np.uint8)
    for field in range(n_halves(form)):
        set_half(form, blocks, field, np.array(np.float16(0.5)).view(np.uint16))
    n_in = n_blocks * form.block_weights
    signs = np.stack([np.ones(n_in), -np.ones(n_in), np.resize([1.0, -1.0], n_in), np.resize([-1.0, -1.0, 1.0, 1.0], n_in)])
    codes = (127 * signs).astype(np.int8)
    scales = np.full((4, n_in // 32), 0.25, np.float32)
    sums = codes.reshape(4, -1, 32).sum(axis=2, dtype=np.int32)
    weights = Weights(form, n_in, 3, blocks.reshape(-1))
    expected = plain_products(control, weights, dense(4), (codes, scales, sums))
    assert same_bits(vector_products(instructions, control, weights, dense(4), packed(codes, scales)), expected)


@every_format
def test_scales_that_are_not_finite_spoil_their_own_row_only(form, instructions, control):
    n_in = 640 if fits(form, 640) else 512
    weights, x = random_weights(form, n_in, N_OUT), random_rows(5, n_in)
    x[2, 7] = np.nan
    x[4, n_in - 1] = np.inf
    per_row = n_in // form.block_weights
    blocks = weights.raw.reshape(N_OUT * per_row, form.block_bytes)
    for field in range(n_halves(form)):
        set_half(form, blocks[7 * per_row : 8 * per_row], field, np.array(np.nan, np.float16).view(np.uint16))
        set_half(form, blocks[N_OUT * per_row - 1 :], field, np.array(np.inf, np.float16).view(np.uint16))
    for work in (dense(1), dense(5)):
        expected = plain_products(control, weights, work, plain_codes(control, x))
        found = vector_products(instructions, control, weights, work, pages_of(control, x))
        assert same_bits(found, expected)
        rows = [row for row in range(len(found)) if row not in (2, 4)]
        assert np.isnan(found[:, 7]).all() and np.isfinite(found[rows][:, [n for n in range(N_OUT - 1) if n != 7]]).all()


@every_format
def test_products_that_vanish_have_the_bits_of_the_plain_loops(form, instructions, control):
    """Signs of zeros, subnormal scales, sums of codes that are 0; nothing here is infinite or NaN."""
    for n_in in (n for n in (64, 704, 768) if fits(form, n)):
        weights, x = Weights(form, n_in, N_OUT, vanishing_weights(form, 43, N_OUT, n_in)), vanishing_rows(0, 9, n_in)
        for n_rows in (1, 2, 4, 9):
            expected = plain_products(control, weights, dense(n_rows), plain_codes(control, x))
            found = vector_products(instructions, control, weights, dense(n_rows), pages_of(control, x))
            assert np.isfinite(expected).all() and np.array_equal(found.view(np.int32), expected.view(np.int32)), (n_in, n_rows)


@every_set
@pytest.mark.parametrize("name", ["Q8_0", "Q4_K", "IQ2_XS"])
def test_no_thread_count_changes_a_bit(name, instructions, control):
    weights, x = random_weights(by_name(name), 2560, 200), random_rows(3, 2560)
    pages = pages_of(control, x)
    alone = {n: vector_products(instructions, control, weights, dense(n), pages) for n in (1, 3)}
    with Team(3) as team:
        for n, expected in alone.items():
            for _ in range(20):
                assert same_bits(vector_products(instructions, team.control, weights, dense(n), pages), expected)
