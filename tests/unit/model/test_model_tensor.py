"""One encoded tensor: views, exact widening, refusals."""

from pathlib import Path

import numpy as np
import pytest

from strata.model.tensor import LARGEST_FLOATS, Tensor
from tests.unit.model.damage import refusal


def tensor(array, type_name, shape=None):
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Tensor("blk.0.example", type_name, shape or array.shape, raw, Path("model.gguf"))


def test_rows_and_bytes_follow_from_the_shape():
    bank = tensor(np.arange(3 * 4 * 34, dtype=np.uint8).reshape(3, 4, 34), "Q8_0", (3, 4, 32))
    assert (bank.n_weights, bank.rows, bank.columns, bank.row_bytes, bank.is_quantised) == (384, 12, 32, 34, True)
    assert bank.as_bytes().shape == (12, 34)
    vector = tensor(np.zeros(7, np.float32), "F32")
    assert (vector.rows, vector.columns, vector.row_bytes, vector.is_quantised) == (1, 7, 28, False)


def test_a_part_of_a_bank_is_a_view_of_its_own_rows():
    bank = tensor(np.arange(3 * 4 * 34, dtype=np.uint8).reshape(3, 4, 34), "Q8_0", (3, 4, 32))
    part = bank.part(2)
    assert part.shape == (4, 32) and part.name == "blk.0.example[2]"
    assert np.shares_memory(part.raw, bank.raw)
    assert np.array_equal(part.raw, bank.raw[2 * 136 :])
    assert not np.array_equal(part.raw, bank.part(1).raw)


@pytest.mark.parametrize("index", [-1, 3])
def test_a_part_that_does_not_exist_is_an_index_error(index):
    bank = tensor(np.zeros((3, 4, 34), np.uint8), "Q8_0", (3, 4, 32))
    with pytest.raises(IndexError, match="3 parts"):
        bank.part(index)


def test_floats_are_viewed_without_a_copy():
    values = np.random.default_rng(1).standard_normal((5, 3), dtype=np.float32)
    stored = tensor(values, "F32")
    assert np.array_equal(stored.as_float32(), values) and np.shares_memory(stored.as_float32(), stored.raw)
    bits = np.arange(15, dtype=np.uint16).reshape(5, 3)
    for type_name in ("BF16", "F16"):
        stored = tensor(bits, type_name)
        assert np.array_equal(stored.as_uint16(), bits) and np.shares_memory(stored.as_uint16(), stored.raw)


def test_every_half_precision_number_widens_exactly():
    bits = np.arange(65536, dtype=np.uint16)
    widened = tensor(bits, "F16").floats()
    finite = np.isfinite(bits.view(np.float16))
    assert widened.dtype == np.float32 and widened.flags.c_contiguous
    assert np.array_equal(widened[finite].astype(np.float64), bits.view(np.float16)[finite].astype(np.float64))
    assert np.array_equal(widened[finite].astype(np.float16).view(np.uint16), bits[finite])


def test_every_bfloat16_widens_to_the_float32_with_the_same_upper_bits():
    bits = np.arange(65536, dtype=np.uint16)
    widened = tensor(bits, "BF16").floats()
    assert widened.dtype == np.float32
    assert np.array_equal(widened.view(np.uint32), bits.astype(np.uint32) * 65536)
    one = np.flatnonzero(bits == 0x3F80)[0]
    assert widened[one] == 1.0 and widened[one + 1] != 1.0


def test_float32_comes_back_bit_by_bit():
    bits = np.random.default_rng(2).integers(0, 2**32, 1000, dtype=np.uint32)
    assert np.array_equal(tensor(bits.view(np.float32), "F32").floats().view(np.uint32), bits)


def test_a_block_format_is_never_widened():
    error = refusal(tensor(np.zeros((1, 34), np.uint8), "Q8_0", (1, 32)).floats)
    assert "blk.0.example" in error.what and "model.gguf" in error.what and "Q8_0 is a block format" in error.why


def test_a_large_tensor_is_never_widened():
    most = np.zeros(LARGEST_FLOATS, np.uint16)
    assert tensor(most, "BF16").floats().size == LARGEST_FLOATS
    error = refusal(tensor(np.zeros(LARGEST_FLOATS + 1, np.uint16), "BF16").floats)
    assert "1,048,577 entries" in error.why


def test_a_view_of_another_type_is_refused():
    assert "F32" in refusal(tensor(np.zeros(4, np.float32), "F32").as_uint16).why
    assert "BF16" in refusal(tensor(np.zeros(4, np.uint16), "BF16").as_float32).why
