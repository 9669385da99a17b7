"""The stranger's decoders of section 8 against the engine's, so that the products' tests rest on both."""

import numpy as np
import pytest

from strata.formats.contract import GROUP
from strata.formats.table import FORMATS
from strata.formats.unpack import dequantise
from tests.unit.formats.blocks import decode as engine_decode
from tests.unit.formats.blocks import random_blocks
from tests.unit.numerics.bounds import equal_bits
from tests.unit.numerics.stranger.blocks import has_offset
from tests.unit.numerics.stranger.grids import DECODERS, decode

every_format = pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)


def test_the_stranger_knows_every_format():
    assert set(DECODERS) == {form.name for form in FORMATS.values()}


@every_format
def test_codes_scales_and_offsets_are_the_engines(form):
    blocks = random_blocks(form, 100, seed=1)
    ours, theirs = decode(form.name, blocks), engine_decode(form, blocks)
    assert np.array_equal(ours.q, theirs.q) and np.array_equal(ours.s, theirs.s)
    assert equal_bits(ours.d, theirs.d) and equal_bits(ours.offset, theirs.offset)


@every_format
def test_values_are_the_engines(form):
    blocks = random_blocks(form, 40, seed=2)
    ours = decode(form.name, blocks).values(has_offset(form.name))
    assert equal_bits(ours, dequantise(form, blocks.reshape(-1), len(ours)))


@every_format
def test_the_integer_of_a_group_stays_below_its_documented_largest(form):
    parts = decode(form.name, random_blocks(form, 300, seed=3))
    worst = 127 * np.abs(parts.q * np.repeat(parts.s, GROUP // 2, axis=1)).sum(axis=1).max()
    assert worst <= form.largest_product < 1 << 24
