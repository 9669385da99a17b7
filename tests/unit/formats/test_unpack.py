"""Whole rows: where they start, what is written, and what is refused."""

import numpy as np
import pytest

from strata.errors import ModelFileError
from strata.formats.contract import GROUP
from strata.formats.table import by_name
from strata.formats.unpack import dequantise
from tests.unit.formats.blocks import ALL, decode, random_blocks, unpack_into

GUARD = 16
FILL = 77


def guarded(n, dtype):
    whole = np.full(n + 2 * GUARD, FILL, dtype)
    return whole, whole[GUARD : GUARD + n]


def untouched(whole):
    return (whole[:GUARD] == FILL).all() and (whole[-GUARD:] == FILL).all()


@pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)
def test_a_row_inside_a_tensor_is_unpacked_alone_and_nothing_else_is_written(form):
    rows = random_blocks(form, 3 * 2, seed=1)
    per_row = 2 * form.block_weights // GROUP
    shapes = ((8, np.int32), (1, np.float32), (2, np.int32), (1, np.float32))
    outputs = [guarded(per_row * width, dtype) for width, dtype in shapes]
    unpack_into(form, rows.reshape(-1), 2 * form.block_bytes, per_row, *(inner for _, inner in outputs))
    expected = decode(form, rows[2:4])
    q, d, s, offset = (inner for _, inner in outputs)
    assert all(untouched(whole) for whole, _ in outputs)
    assert np.array_equal(q.view(np.int8).reshape(-1, GROUP), expected.q)
    assert np.array_equal(d, expected.d) and np.array_equal(offset, expected.offset)
    assert np.array_equal(s.reshape(-1, 2), expected.s)
    assert not np.array_equal(decode(form, rows[:2]).q, expected.q)


@pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)
def test_values_are_the_scaled_integers_rounded_once_plus_the_offset_rounded_once(form):
    blocks = random_blocks(form, 50, seed=2)
    parts = decode(form, blocks)
    scaled = (parts.q.astype(np.int32) * np.repeat(parts.s, GROUP // 2, axis=1)).astype(np.float32)
    expected = parts.d[:, None] * scaled
    if form.has_offset:
        expected = expected + parts.offset[:, None]
    found = dequantise(form, blocks, 50 * form.block_weights)
    assert np.array_equal(found.view(np.int32), expected.reshape(-1).view(np.int32))


def test_weights_that_do_not_fill_blocks_are_refused():
    form = by_name("Q4_K")
    with pytest.raises(ModelFileError, match="n_weights=300: Q4_K stores blocks of 256 weights"):
        dequantise(form, random_blocks(form, 2, seed=3), 300)


def test_missing_bytes_are_refused():
    form = by_name("Q4_K")
    with pytest.raises(ModelFileError, match="287 bytes of Q4_K: 512 weights take 288"):
        dequantise(form, random_blocks(form, 2, seed=4).reshape(-1)[:-1], 512)


def test_reading_leaves_the_caller_s_array_writable():
    form = by_name("Q8_0")
    blocks = random_blocks(form, 1, seed=5)
    dequantise(form, blocks, 32)
    assert blocks.flags.writeable
