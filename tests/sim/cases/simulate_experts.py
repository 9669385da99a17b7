"""The kernels of a window's experts at toy sizes: every kind of unpacking, ragged tails, surplus blocks, guard bands."""

from dataclasses import replace

import pytest

from strata.formats.table import by_name
from tests.gpu import checks_experts
from tests.gpu.checks_experts import forms_of
from tests.gpu.geometry import TOY
from tests.unit.formats.vanishing import vanishing_rows, vanishing_weights


@pytest.mark.parametrize(
    ("name", "n_in", "n_rows", "parts"),
    [("Q4_K", 768, 1, "both"), ("Q2_0", 320, 3, "both"), ("Q3_K", 256, 2, "two launches"), ("Q5_1", 96, 8, "both")],
)
def test_gate_and_up(name, n_in, n_rows, parts, card, control):
    checks_experts.check_gate_up(card, control, by_name(name), n_in, 32, n_rows, 2, parts)


@pytest.mark.parametrize(
    ("name", "width", "n_out", "n_rows", "parts"),
    [("Q4_K", 256, 70, 1, "both"), ("Q2_0", 320, 33, 3, "both"), ("Q3_K", 256, 65, 2, "two launches"), ("Q8_0", 288, 70, 8, "both")],
)
def test_down(name, width, n_out, n_rows, parts, card, control):
    checks_experts.check_down(card, control, by_name(name), width, n_out, n_rows, 2, parts)


def test_down_of_rows_taken_whole(card, control, monkeypatch):
    from strata.cuda.experts import expert_products

    monkeypatch.setattr(expert_products, "FEW_ENTRIES", 0)
    monkeypatch.setattr(expert_products, "SHORT_TURNS", 3)
    checks_experts.check_down(card, control, by_name("Q4_0"), 320, 256, 2, 2, shared_form=by_name("Q2_0"))


@pytest.mark.parametrize(("name", "shared", "n_rows"), [("Q2_0", "Q4_0", 1), ("Q4_0", "Q2_0", 5)])
def test_a_shared_expert_of_another_format(name, shared, n_rows, card, control):
    checks_experts.check_gate_up(card, control, by_name(name), 320, 32, n_rows, 2, shared_form=by_name(shared))
    checks_experts.check_down(card, control, by_name(name), 320, 65, n_rows, 2, shared_form=by_name(shared))


@pytest.mark.parametrize(("name", "n_rows"), [("Q4_K", 2), ("Q6_K", 5)])
def test_products_that_vanish(name, n_rows, card, control, monkeypatch):
    monkeypatch.setattr(checks_experts, "random_rows", vanishing_rows)
    monkeypatch.setattr(checks_experts, "packed_weights", vanishing_weights)
    checks_experts.check_gate_up(card, control, by_name(name), 256, 32, n_rows, 2)
    checks_experts.check_down(card, control, by_name(name), 256, 33, n_rows, 2)


MANY = replace(TOY, n_experts=70, n_used=5)


@pytest.mark.parametrize(
    ("config", "type_name", "n_rows", "kind"),
    [(TOY, "BF16", 1, ""), (TOY, "F32", 3, ""), (TOY, "BF16", 5, "special"), (MANY, "BF16", 1, "equal"), (MANY, "F32", 2, "rising"), (MANY, "BF16", 1, "special")],
)
def test_the_router(config, type_name, n_rows, kind, card, control):
    checks_experts.check_router(card, control, config, type_name, n_rows, kind)


SMALL_TOY = replace(TOY, n_experts=5, n_used=2, shared_ff=32)


@pytest.mark.parametrize(
    ("forms", "n_rows", "changes", "n_launches"),
    [
        (forms_of("Q8_0", "Q4_0", "Q8_0", "Q4_0"), 2, {}, 3),
        (forms_of("Q4_0", "Q8_0", "Q5_0", "Q5_1"), 1, {}, 3),
        (forms_of("Q4_0", "Q8_0", "Q4_0", "Q8_0", up="Q5_0", shared_router="F32"), 1, {"shared_ff": 64}, 9),
        (forms_of("Q4_0", "Q4_0", "Q4_0", "Q4_0"), 9, {}, 14),
    ],
    ids=["alike", "other formats", "other widths", "a chunk"],
)
def test_a_block(forms, n_rows, changes, n_launches, card, control):
    checks_experts.check_block(card, control, replace(SMALL_TOY, **changes), forms, n_rows, n_launches)
