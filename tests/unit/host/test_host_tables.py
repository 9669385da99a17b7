"""Looked-up rows and matrices of every type a tensor may have, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from strata.cpu_pool.team import Team
from strata.errors import ModelFileError
from strata.formats.table import FORMATS
from strata.host.matrix import Activations, Entries, Matrix
from strata.host.placed import Rows, inverse_root
from strata.model.tensor import Tensor
from tests.unit.host.cases_products import N_IN, N_OUT, matrix_rows
from tests.unit.numerics.bounds import equal_bits
from tests.unit.numerics.stranger.products import look_up, times

CONTROL = Team(1).control
FLOAT_BITS = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}
every_type = pytest.mark.parametrize("name", [*(form.name for form in FORMATS.values()), *FLOAT_BITS])


def stored_rows(name: str) -> np.ndarray:
    """Rows [N_OUT, ...] as a file has them: bytes of blocks, or bits of floats."""
    if name not in FLOAT_BITS:
        return matrix_rows(next(form for form in FORMATS.values() if form.name == name))
    values = np.random.default_rng(1).standard_normal((N_OUT, N_IN)).astype(np.float32)
    bits = {"F32": values.view(np.uint32), "F16": values.astype(np.float16).view(np.uint16), "BF16": (values.view(np.uint32) >> 16).astype(np.uint16)}
    return bits[name]


def tensor(name: str, shape=(N_OUT, N_IN)) -> Tensor:
    raw = np.ascontiguousarray(stored_rows(name)).reshape(-1).view(np.uint8).copy()
    raw.flags.writeable = False
    return Tensor("test.weight", name, shape, raw, Path("test.gguf"))


@every_type
def test_looked_up_rows_are_the_strangers(name):
    indices = np.array([3, 0, 3, 4], np.int64)
    assert equal_bits(Rows(tensor(name)).rows(indices), look_up(name, stored_rows(name)[indices]))


@every_type
@pytest.mark.parametrize("coded", [True, False], ids=["canonical", "wide"])
def test_a_matrix_chooses_its_product_by_its_type(name, coded):
    x = np.random.default_rng(2).standard_normal((3, N_IN)).astype(np.float32)
    found = Matrix(tensor(name)).times(Activations(x, CONTROL, np.full(3, 32, np.int32)), coded, CONTROL)
    assert equal_bits(found, times(name, stored_rows(name), x, "canonical" if coded else "wide"))


def test_the_float_types_alone_take_the_same_product_in_both_modes():
    x = Activations(np.random.default_rng(3).standard_normal((2, N_IN)).astype(np.float32), CONTROL, np.full(2, 32, np.int32))
    same = {
        name for name in ("BF16", "F32", "Q8_0")
        if equal_bits(Matrix(tensor(name)).times(x, True, CONTROL), Matrix(tensor(name)).times(x, False, CONTROL))
    }
    assert same == {"BF16", "F32"}


def test_a_vector_is_a_matrix_of_one_row():
    one = Tensor("gate.weight", "BF16", (N_IN,), tensor("BF16").raw[: 2 * N_IN], Path("test.gguf"))
    x = np.random.default_rng(4).standard_normal((3, N_IN)).astype(np.float32)
    found = Matrix(one).times(Activations(x, CONTROL, np.full(3, 32, np.int32)), True, CONTROL)
    assert equal_bits(found, times("BF16", stored_rows("BF16")[:1], x))


def test_a_bank_of_float_experts_is_refused_by_name():
    bank = Matrix(tensor("BF16", (1, N_OUT, N_IN)))
    entries = Entries(np.zeros(1, np.int32), np.array([0, 1], np.int32), np.zeros(1, np.int32))
    x = Activations(np.zeros((1, N_IN), np.float32), CONTROL, np.full(1, 32, np.int32))
    with pytest.raises(ModelFileError, match="test.weight is BF16: expert banks of float types"):
        bank.times(x, True, CONTROL, entries)


def test_the_inverse_root_is_two_roundings():
    assert equal_bits(np.array([inverse_root(n) for n in (32, 64, 128)]), np.float32(1) / np.sqrt(np.array([32, 64, 128], np.float32)))
