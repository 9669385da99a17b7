"""First and last rows of every quantised tensor of the shipped model, against gguf's values."""

from functools import cache
from pathlib import Path

import gguf
import numpy as np
import pytest

from strata.formats import gguf_types  # noqa: F401  (lets gguf open files with Q2_0)
from strata.formats.table import FLOATS, FORMATS, by_name
from strata.formats.unpack import dequantise
from tests.unit.formats.blocks import decode, decode_q2_0

FOLDER = Path(__file__).parents[3] / "fixtures" / "strata-mini-mix"
FILES = {"strata-mini-mix.gguf": 315, "strata-mini-mix-mtp.gguf": 29}
TYPES = ("Q8_0", "Q4_0", "Q5_0", "Q5_1", "IQ4_NL", "IQ4_XS", "Q2_0", "Q3_K", "Q4_K", "Q5_K", "IQ2_XS",
         "IQ2_S", "IQ3_XXS", "IQ3_S")


@cache
def tensors():
    return [tensor for name in FILES for tensor in gguf.GGUFReader(FOLDER / name).tensors]


def rows_of(tensor):
    """The tensor's rows as uint8 [n_rows, row_bytes] and the weights per row."""
    return tensor.data.reshape(-1, tensor.data.shape[-1]), int(tensor.shape[0])


def test_both_files_open_and_hold_only_known_types():
    assert len(tensors()) == sum(FILES.values())
    assert {int(tensor.tensor_type) for tensor in tensors()} <= set(FORMATS) | set(FLOATS)


@pytest.mark.parametrize("name", TYPES)
def test_first_and_last_rows_of_every_tensor_of_this_type_decode_as_expected(name):
    form, n_tensors = by_name(name), 0
    for tensor in tensors():
        if int(tensor.tensor_type) != form.type_id:
            continue
        rows, n_weights = rows_of(tensor)
        for row in (rows[0], rows[-1]):
            row = np.array(row)
            expected = decode_q2_0(row) if name == "Q2_0" else gguf.quants.dequantize(row, tensor.tensor_type)
            assert np.array_equal(dequantise(form, row, n_weights), expected), tensor.name
        n_tensors += 1
    assert n_tensors > 0


def test_no_q8_0_tensor_holds_a_code_of_minus_128():
    form = by_name("Q8_0")
    for tensor in tensors():
        if int(tensor.tensor_type) == form.type_id:
            assert decode(form, np.array(tensor.data).reshape(-1, form.block_bytes)).q.min() >= -127, tensor.name


def test_a_row_decoded_one_block_late_differs():
    tensor = next(tensor for tensor in tensors() if tensor.tensor_type.name == "Q4_K")
    rows, n_weights = rows_of(tensor)
    row = np.array(rows[:2]).reshape(-1)
    right, late = dequantise(by_name("Q4_K"), row, n_weights), dequantise(by_name("Q4_K"), row[144:], n_weights)
    assert not np.array_equal(right, late)
