"""Float row products in vectors against the plain loops, bit by bit."""

import numpy as np
import pytest

from strata.cpu_pool.float_row_products import float_row_product
from strata.cpu_pool.team import Team
from strata.host.float_products import float_product
from tests.unit.cpu_pool.row_cases import FILL, same_bits

LENGTHS = (8, 16, 56, 64, 72, 128, 136, 192, 256, 264, 320, 384, 448, 512, 600, 1024, 2560)
ROW_COUNTS = (1, 2, 3, 8, 9, 33)
N_OUT = 11
every_type = pytest.mark.parametrize("type_name", ["BF16", "F16", "F32"])


@pytest.fixture(scope="module")
def control():
    with Team(1) as team:
        yield team.control


def stored(type_name: str, values: np.ndarray) -> np.ndarray:
    if type_name == "F32":
        return values
    return values.astype(np.float16).view(np.uint16) if type_name == "F16" else (values.view(np.uint32) >> 16).astype(np.uint16)


def products(kernel, control, weights, x) -> np.ndarray:
    whole = np.full((len(x) + 2, len(weights)), FILL)
    kernel(control, weights, x, whole[1:-1])
    assert (whole[0] == FILL).all() and (whole[-1] == FILL).all(), "written outside the results"
    return whole[1:-1]


@every_type
@pytest.mark.parametrize("n_in", LENGTHS)
def test_bits_are_those_of_the_plain_loops(type_name, n_in, control):
    generator = np.random.default_rng(n_in)
    weights = stored(type_name, generator.standard_normal((N_OUT, n_in)).astype(np.float32))
    for n_rows in ROW_COUNTS:
        x = generator.standard_normal((n_rows, n_in)).astype(np.float32)
        expected = products(float_product(type_name), control, weights, x)
        assert same_bits(products(float_row_product(type_name), control, weights, x), expected), n_rows
    order = generator.permutation(n_in)
    other = products(float_row_product(type_name), control, weights[:, order].copy(), x[:, order].copy())
    assert not same_bits(other, expected), "another order has other bits"


@pytest.mark.parametrize("n_in", LENGTHS)
def test_signs_of_vanishing_sums_are_those_of_the_plain_loops(n_in, control):
    weights = np.stack([np.full(n_in, v, np.float32) for v in (-1e-40, 1e-40, 0.0, -0.0)])
    weights[1, ::2] *= -1
    for x in (np.full((3, n_in), 1e-10, np.float32), np.full((3, n_in), -0.0, np.float32)):
        for rows in (x[:1], x):
            expected = products(float_product("F32"), control, weights, rows)
            assert same_bits(products(float_row_product("F32"), control, weights, rows), expected)


def test_a_row_that_is_not_finite_spoils_no_other(control):
    generator = np.random.default_rng(5)
    weights, x = generator.standard_normal((N_OUT, 1024)).astype(np.float32), generator.standard_normal((5, 1024)).astype(np.float32)
    x[3, 700], weights[4, 5] = np.nan, np.inf
    found = products(float_row_product("F32"), control, weights, x)
    assert same_bits(found, products(float_product("F32"), control, weights, x))
    assert np.isnan(found[3]).all() and np.isinf(found[:3, 4]).all()
    assert np.isfinite(np.delete(np.delete(found, 3, axis=0), 4, axis=1)).all()


def test_no_thread_count_changes_a_bit(control):
    generator = np.random.default_rng(6)
    weights, x = generator.standard_normal((300, 1024)).astype(np.float32), generator.standard_normal((6, 1024)).astype(np.float32)
    expected = products(float_row_product("F32"), control, weights, x)
    with Team(3) as team:
        for _ in range(20):
            assert same_bits(products(float_row_product("F32"), team.control, weights, x), expected)
