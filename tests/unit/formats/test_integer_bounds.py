"""The integers of every format: which codes and sub-scales occur, and that a group's product stays below 2^24."""

import gguf.quants
import numpy as np
import pytest

from strata.formats.contract import GROUP, LARGEST_ACTIVATION
from strata.formats.table import by_name
from tests.unit.formats.blocks import ALL, decode, random_blocks

FLOAT32_INTEGERS = 1 << 24
any_form = pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)

LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
ODD_TO_31 = range(1, 32, 2)


def both_signs(*magnitudes):
    return {sign * magnitude for magnitude in magnitudes for sign in (-1, 1)}


CODES = {
    "Q8_0": range(-128, 128), "Q4_0": range(-8, 8), "Q5_0": range(-16, 16), "Q5_1": range(32), "Q2_0": range(-1, 3),
    "IQ4_NL": LEVELS, "IQ4_XS": LEVELS, "Q3_K": range(-4, 4), "Q4_K": range(16), "Q5_K": range(32),
    "Q6_K": range(-32, 32), "IQ1_M": both_signs(1, 7, 9), "IQ2_XXS": both_signs(8, 25, 43),
    "IQ2_XS": both_signs(8, 25, 43), "IQ2_S": both_signs(8, 25, 43),
    "IQ3_XXS": both_signs(4, 12, 20, 28, 36, 44, 52, 62), "IQ3_S": both_signs(*range(1, 16, 2)),
}
SCALES = {
    "IQ4_XS": range(-32, 32), "Q3_K": range(-32, 32), "Q4_K": range(64), "Q5_K": range(64), "Q6_K": range(-128, 128),
    "IQ1_M": range(1, 16, 2), "IQ2_XXS": ODD_TO_31, "IQ2_XS": ODD_TO_31, "IQ2_S": ODD_TO_31, "IQ3_XXS": ODD_TO_31,
    "IQ3_S": ODD_TO_31,
}
GRID_PATTERNS = {
    "IQ1_M": (8, 2 * 2048), "IQ2_XXS": (8, 256), "IQ2_XS": (8, 512), "IQ2_S": (8, 1024), "IQ3_XXS": (4, 256),
    "IQ3_S": (4, 512),
}


@any_form
def test_random_blocks_hold_exactly_the_codes_and_sub_scales_of_the_format(form):
    parts = decode(form, random_blocks(form, 2000, seed=4))
    assert set(np.unique(parts.q).tolist()) == set(CODES[form.name])
    assert set(np.unique(parts.s).tolist()) == set(SCALES.get(form.name, (1,)))


@pytest.mark.parametrize("name", GRID_PATTERNS)
def test_every_grid_entry_occurs(name):
    width, n_patterns = GRID_PATTERNS[name]
    q = decode(by_name(name), random_blocks(by_name(name), 2000, seed=5)).q.reshape(-1, width)
    patterns = q if name == "IQ1_M" else np.abs(q)
    assert len(np.unique(patterns, axis=0)) == n_patterns


@any_form
def test_codes_fit_into_127_either_way_and_only_q8_0_passes_a_stored_128_on(form):
    q = decode(form, random_blocks(form, 2000, seed=6)).q
    assert q.dtype == np.int8
    assert int(q.min()) >= -127 or form.name == "Q8_0"


def test_ggufs_quantiser_writes_no_q8_0_code_of_minus_128():
    values = np.random.default_rng(7).standard_normal((64, 1024)).astype(np.float32)
    stored = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0).reshape(-1, 34)
    q = decode(by_name("Q8_0"), stored).q
    assert (int(q.min()), int(q.max())) == (-127, 127)


@any_form
def test_the_largest_product_is_what_the_largest_code_and_scale_give(form):
    parts = decode(form, random_blocks(form, 2000, seed=8))
    scale, code = np.abs(parts.s).max(), np.abs(parts.q.astype(np.int32)).max()
    assert form.largest_product == GROUP * LARGEST_ACTIVATION * int(scale) * int(code)


@any_form
def test_no_group_exceeds_the_largest_product_and_all_stay_below_two_to_the_24(form):
    """The worst activations are 127 with each weight's sign, so the worst product is 127 times the sum of |s * q|."""
    repeated = np.repeat(np.arange(256, dtype=np.uint8)[:, None], form.block_bytes, axis=1)
    for blocks in (random_blocks(form, 2000, seed=9), repeated):
        parts = decode(form, blocks)
        scaled = np.abs(parts.q.astype(np.int64) * np.repeat(parts.s, GROUP // 2, axis=1))
        assert LARGEST_ACTIVATION * int(scaled.sum(axis=1).max()) <= form.largest_product
    assert form.largest_product < FLOAT32_INTEGERS


def test_a_q6_k_block_reaches_the_largest_product_of_all_formats():
    block = np.zeros((1, 210), np.uint8)
    block[:, 192:208] = 0x80
    parts = decode(by_name("Q6_K"), block)
    product = int((parts.s[0, 0] * parts.q[0].astype(np.int64) * LARGEST_ACTIVATION).sum())
    assert product == 16_646_144 == max(form.largest_product for form in ALL)


def test_float32_holds_the_largest_product_but_not_every_integer_above_two_to_the_24():
    largest = max(form.largest_product for form in ALL)
    assert int(np.float32(largest - 1)) == largest - 1
    assert int(np.float32(FLOAT32_INTEGERS + 1)) != FLOAT32_INTEGERS + 1


@any_form
def test_the_flags_tell_whether_offsets_and_two_scales_occur(form):
    parts = decode(form, random_blocks(form, 2000, seed=10))
    assert bool(parts.offset.any()) == form.has_offset
    assert bool((parts.s[:, 0] != parts.s[:, 1]).any()) == form.split_scales
