"""Pages of coded rows: the codes, scales and sums of the plain coding, laid out group by group, and nothing else."""

import numpy as np
import pytest

from strata.cpu_pool.lane_memory import address_of, keep_alive
from strata.cpu_pool.pages import PAGE_BYTES, buffer_words, clear_lane, encode_group, first_line, row_bytes_of
from strata.cpu_pool.team import Team
from strata.formats.contract import GROUP
from strata.numerics.cpu import kernel
from tests.unit.cpu_pool.row_cases import SETS, pages_of, packed, plain_codes, random_rows, records

pytestmark = pytest.mark.skipif(not SETS, reason="this CPU has no AVX2: there are no pages")
WIDTHS = (32, 64, 96, 256, 288, 640, 2560)


@pytest.fixture(scope="module")
def control():
    with Team(1) as team:
        yield team.control


def laid_out(codes, scales, sums) -> np.ndarray:
    """Pages int32 [rows, pages, 12, 8] of plain codes, by indexing."""
    rows, n_groups = scales.shape
    pages = np.zeros((rows, -(-n_groups // 8), 12, 8), np.int32)
    for group in range(n_groups):
        page, lane = divmod(group, 8)
        mine = codes[:, GROUP * group : GROUP * group + GROUP]
        pages[:, page, :8, lane] = np.ascontiguousarray(mine).view(np.int32)
        pages[:, page, 8, lane] = scales[:, group].view(np.int32)
        pages[:, page, 9, lane] = mine[:, :16].sum(axis=1, dtype=np.int32)
        pages[:, page, 10, lane] = mine[:, 16:].sum(axis=1, dtype=np.int32)
        pages[:, page, 11, lane] = sums[:, group]
    return pages


def folded(pages: np.ndarray) -> np.ndarray:
    """Pages with one NaN for all in the vector of scales."""
    scales = np.ascontiguousarray(pages[:, :, 8]).view(np.float32)
    scales[np.isnan(scales)] = np.nan
    pages = pages.copy()
    pages[:, :, 8] = scales.view(np.int32)
    return pages


def awkward_rows(n_rows: int, n_in: int) -> np.ndarray:
    """Rows with zeros of both signs, halves that round to even, numbers that have no code, and some that are not finite."""
    x = random_rows(n_rows, n_in)
    x[0, :GROUP] = -0.0
    x[1, :GROUP] = np.linspace(-127, 127, GROUP) + 0.5
    x[1, 0] = 127.0
    x[2, :GROUP] = 2.0**-101
    x[3, :GROUP] = np.float32(1e-45)
    x[4, n_in - 1] = np.nan
    x[5, n_in // 2] = -np.inf
    return x


@pytest.mark.parametrize("span", [32, 64, 128, 256])
@pytest.mark.parametrize("n_in", WIDTHS)
def test_pages_hold_the_plain_codes_scales_and_sums(n_in, span, control):
    x = awkward_rows(8, n_in)
    codes, scales, sums = plain_codes(control, x, span)
    expected = folded(laid_out(codes, scales, sums))
    assert np.array_equal(folded(records(pages_of(control, x, span), 8, n_in // GROUP)), expected)
    assert np.array_equal(folded(records(packed(codes, scales), 8, n_in // GROUP)), expected)
    if n_in > GROUP:
        other = laid_out(*plain_codes(control, x, 256 if span == 32 else 32))
        assert not np.array_equal(folded(other), expected), "spans must show"


def test_codes_that_somebody_changed_are_laid_out_as_they_are(control):
    codes, scales, _ = plain_codes(control, random_rows(2, 64))
    before = records(packed(codes, scales), 2, 2).copy()
    codes[1, 40] ^= 1
    after = records(packed(codes, scales), 2, 2)
    changed = np.argwhere(before != after)
    assert changed[:, 2].tolist() == [2, 9, 11] or changed[:, 2].tolist() == [2, 10, 11]
    assert np.array_equal(after, laid_out(codes, scales, codes.reshape(2, 2, GROUP).sum(axis=2, dtype=np.int32)))


def test_no_thread_count_changes_a_page(control):
    x = random_rows(500, 640)
    expected = records(pages_of(control, x), 500, 20)
    with Team(3) as team:
        for _ in range(20):
            assert np.array_equal(records(pages_of(team.control, x), 500, 20), expected)


@kernel
def group_by_group(x, pages):
    n_groups = x.shape[1] // GROUP
    spare = np.empty(32, np.uint8)
    for row in range(x.shape[0]):
        page = first_line(pages) + row * row_bytes_of(n_groups)
        for group in range(n_groups - 1, -1, -1):
            encode_group(address_of(x) + 4 * GROUP * (row * n_groups + group), page + group // 8 * PAGE_BYTES, group % 8, address_of(spare))
        for lane in range((n_groups - 1) % 8 + 1, 8):
            clear_lane(page + (n_groups - 1) // 8 * PAGE_BYTES, lane)
    keep_alive(spare)


@pytest.mark.parametrize("n_in", WIDTHS)
def test_groups_coded_one_by_one_make_the_same_pages(n_in, control):
    x = awkward_rows(8, n_in)
    whole, found = pages_of(control, x), np.full(buffer_words(8, n_in // GROUP), -1, np.int32)
    group_by_group(x, found)
    assert np.array_equal(records(found, 8, n_in // GROUP), records(whole, 8, n_in // GROUP))
