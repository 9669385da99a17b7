"""Ways that windows of many rows alone take, against the host, bit by bit: the head by dp4a, float products of two sides, logits by rows."""

from dataclasses import replace

import pytest

from strata.formats.table import by_name
from tests.gpu.checks_experts import check_router
from tests.gpu.checks_projections import check_projections
from tests.gpu.geometry import REAL


@pytest.mark.parametrize("name", ["Q6_K", "Q3_K"])
def test_many_outputs_of_a_format_with_two_sub_scales_have_the_bits_of_the_host(name, card, control, monkeypatch):
    from strata.cuda.packed import products, window_kernels

    monkeypatch.setattr(window_kernels, "MOST_SPLIT_OUTPUTS", 512)
    form = by_name(name)
    matrix = products.Packed(None, form.type_id, 1000, 2560)
    assert window_kernels.cut_for(card, (matrix,), 8) is None
    check_projections(card, control, (form,), (), (1000,), 2560, (5, 7, 8), 1)


@pytest.mark.parametrize("two_sides", [True, False])
@pytest.mark.parametrize(("type_name", "n_in", "n_outs"), [("BF16", 10240, (320, 4)), ("BF16", 2560, (37, 9)), ("F16", 1288, (8, 3)), ("F32", 1100, (33, 1))])
def test_float_products_of_long_rows_have_the_bits_of_the_host(type_name, n_in, n_outs, two_sides, card, control, monkeypatch):
    monkeypatch.setattr("strata.cuda.floats.float_wide_rows.TWO_SIDES", two_sides)
    check_projections(card, control, (), (type_name,) * 2, n_outs, n_in, range(3, 9), 1)


@pytest.mark.parametrize("wide", [True, False])
def test_float_products_beside_quantised_ones_have_the_bits_of_the_host(wide, card, control, monkeypatch):
    monkeypatch.setattr("strata.cuda.packed.window_kernels.WIDE_FLOATS", wide)
    check_projections(card, control, (by_name("Q4_K"),) * 3, ("BF16",) * 2, (515, 40, 16, 130, 7), 2560, range(5, 9), 1)


@pytest.mark.parametrize("type_name", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("from_row", [3, 99])
def test_the_router_has_the_bits_of_the_host_either_way(type_name, from_row, card, control, monkeypatch):
    monkeypatch.setattr("strata.cuda.experts.router.BY_ROWS_FROM", from_row)
    for n_rows in range(3, 9):
        check_router(card, control, REAL, type_name, n_rows)
    check_router(card, control, replace(REAL, n_experts=70, n_used=5), type_name, 8, "special")
