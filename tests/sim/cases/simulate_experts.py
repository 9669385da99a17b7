"""The kernels of a window's experts at toy sizes: every kind of unpacking, ragged tails, surplus blocks, guard bands."""

import pytest

from strata.formats.table import by_name
from tests.gpu import checks_experts


@pytest.mark.parametrize(
    ("name", "n_in", "n_rows", "parts"),
    [("Q4_K", 768, 1, "both"), ("Q2_0", 320, 3, "both"), ("Q3_K", 256, 2, "two launches"), ("Q5_1", 96, 5, "both")],
)
def test_gate_and_up(name, n_in, n_rows, parts, card, control):
    checks_experts.check_gate_up(card, control, by_name(name), n_in, 32, n_rows, 2, parts)


@pytest.mark.parametrize(
    ("name", "width", "n_out", "n_rows", "parts"),
    [("Q4_K", 256, 70, 1, "both"), ("Q2_0", 320, 33, 3, "both"), ("Q3_K", 256, 65, 2, "two launches"), ("Q8_0", 288, 150, 5, "both")],
)
def test_down(name, width, n_out, n_rows, parts, card, control):
    checks_experts.check_down(card, control, by_name(name), width, n_out, n_rows, 2, parts)
