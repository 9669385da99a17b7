"""The experts block of a window on a card against the host, bit by bit: each kernel at 1 .. 8 rows, and the block as recorded.

Odd rows choose the experts of the row before, so that entries share weights; lists have surplus places.
"""

from dataclasses import replace

import pytest

from strata.formats.table import FORMATS, by_name
from tests.gpu import checks_experts, checks_in_turn
from tests.gpu.checks_experts import forms_of
from tests.gpu.geometry import REAL, SMALL

ALL = pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
FEW_EXPERTS = replace(REAL, n_experts=24)


def columns(form) -> int:
    """Columns: not a whole number of 256-weight units where the format allows it."""
    return 768 if form.block_weights == 256 else 704


@ALL
def test_gate_and_up_have_the_bits_of_the_host_at_every_row_count(form, card, control):
    for n_rows in range(1, 9):
        checks_experts.check_gate_up(card, control, form, columns(form), 96, n_rows, 4)
    checks_experts.check_gate_up(card, control, form, columns(form), 32, 7, 2, "two launches")
    checks_experts.check_gate_up(card, control, form, columns(form), 32, 8, 9)


@ALL
def test_down_has_the_bits_of_the_host_at_every_row_count(form, card, control):
    for n_rows in range(1, 9):
        checks_experts.check_down(card, control, form, columns(form), 300, n_rows, 4)
    checks_experts.check_down(card, control, form, columns(form), 83, 7, 2, "two launches")
    checks_experts.check_down(card, control, form, columns(form), 83, 8, 9)


@pytest.mark.parametrize(("name", "width", "shared"), [
    ("Q4_0", 640, "Q4_0"), ("Q2_0", 704, "Q4_0"), ("Q8_0", 352, "Q4_0"), ("Q4_K", 512, "Q4_K"), ("Q3_K", 768, "Q2_0"), ("Q5_1", 96, "Q5_1"), ("IQ4_NL", 640, "IQ4_NL"),
])
def test_down_of_rows_taken_whole_has_the_bits_of_the_host_at_every_row_count(name, width, shared, card, control):
    from strata.cuda.experts import short_downs

    form, common = by_name(name), by_name(shared)
    assert all(short_downs.takes(one, width // 32, 448) for one in (form, common))
    for n_rows in range(2, 9):
        checks_experts.check_down(card, control, form, width, 448, n_rows, 4, shared_form=common)
    checks_experts.check_down(card, control, form, width, 448, 8, 9, "two launches", shared_form=common)


@pytest.mark.parametrize(("name", "shared"), [("Q2_0", "Q4_K"), ("Q4_0", "Q2_0"), ("Q3_K", "Q8_0"), ("IQ3_S", "Q4_K")])
def test_a_shared_expert_of_another_format_has_the_bits_of_the_host_at_every_row_count(name, shared, card, control):
    form, common = by_name(name), by_name(shared)
    for n_rows in range(1, 9):
        checks_experts.check_gate_up(card, control, form, 768, 96, n_rows, 4, shared_form=common)
        checks_experts.check_down(card, control, form, 768, 300, n_rows, 4, shared_form=common)


@pytest.mark.parametrize("name", ["Q4_K", "Q2_0", "Q8_0"])
def test_the_real_geometry_has_the_bits_of_the_host(name, card, control):
    form = by_name(name)
    for n_rows in (1, 2, 8):
        checks_experts.check_gate_up(card, control, form, REAL.hidden, REAL.expert_ff, n_rows, 5)
        if REAL.expert_ff % form.block_weights == 0:
            checks_experts.check_down(card, control, form, REAL.expert_ff, REAL.hidden, n_rows, 5)


@pytest.mark.parametrize("config", [REAL, SMALL], ids=["real", "small"])
@pytest.mark.parametrize("type_name", ["BF16", "F16", "F32"])
def test_router_and_choice_are_those_of_the_host_at_every_row_count(config, type_name, card, control):
    for n_rows in range(1, 9):
        checks_experts.check_router(card, control, config, type_name, n_rows)
    for kind in checks_experts.LOGITS if type_name != "F16" else ():
        for n_rows in (1, 2, 8):
            checks_experts.check_router(card, control, config, type_name, n_rows, kind)


@pytest.mark.parametrize(
    ("forms", "n_launches"),
    [
        (forms_of("Q2_0", "Q2_0", "Q2_0", "Q2_0"), 3), (forms_of("Q4_K", "Q4_0", "Q4_K", "Q4_0"), 3),
        (forms_of("IQ3_S", "IQ4_NL", "Q4_K", "Q8_0"), 3), (forms_of("Q2_0", "Q2_0", "Q4_K", "Q4_0"), 3), (forms_of("Q3_K", "Q5_1", "Q3_K", "Q5_1", up="Q5_K", shared_router="F32"), 8),
    ],
    ids=["Q2_0", "Q4_K", "other formats", "Q2_0 beside Q4_K", "gate and up differ"],
)
def test_a_recorded_block_has_the_bits_of_the_host(forms, n_launches, card, control):
    for n_rows in (1, 2, 5, 8):
        checks_experts.check_block(card, control, FEW_EXPERTS, forms, n_rows, n_launches)


@pytest.mark.parametrize("forms", [("Q4_K", "Q4_0", "Q4_K", "Q4_0"), ("Q2_0", "Q2_0", "Q4_K", "Q4_0")], ids=["Q4_K", "Q2_0 beside Q4_K"])
def test_blocks_of_two_inputs_in_turn_keep_their_bits_when_kernels_overlap(forms, card, control):
    for n_rows in (1, 2, 8):
        checks_in_turn.check_blocks_in_turn(card, control, FEW_EXPERTS, forms_of(*forms), n_rows)


def test_a_recorded_chunk_has_the_bits_of_the_host(card, control):
    for n_rows in (9, 130):
        checks_experts.check_block(card, control, FEW_EXPERTS, forms_of("Q4_K", "Q4_0", "Q4_K", "Q4_0"), n_rows, 14)


@pytest.mark.parametrize(
    "check",
    [
        lambda card, control: checks_experts.check_down(card, control, by_name("Q2_0"), 320, 70, 3, 2),
        lambda card, control: checks_experts.check_router(card, control, SMALL, "BF16", 3),
        lambda card, control: checks_experts.check_block(card, control, replace(SMALL, n_experts=8), forms_of("Q4_0", "Q4_0", "Q4_0", "Q4_0"), 2, 3),
    ],
    ids=["down", "router", "block"],
)
def test_a_single_changed_bit_is_noticed(check, card, control, monkeypatch):
    honest = checks_experts.GuardedOutput.read

    def changed(self, shape):
        values = honest(self, shape)
        values.reshape(-1).view("int32")[-1] ^= 1
        return values

    check(card, control)
    monkeypatch.setattr(checks_experts.GuardedOutput, "read", changed)
    with pytest.raises(AssertionError, match="differ"):
        check(card, control)
