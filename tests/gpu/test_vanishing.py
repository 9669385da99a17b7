"""Every product kernel on a card against the host where products vanish: signs of zeros, subnormal scales, sums of codes that are 0.

Kernels that turn integers into floats by the bits of 3 * 2^22 have to give the zeros and last bits of a plain conversion.
No value is infinite or NaN, whose bits are outside the contract: `tests.unit.formats.vanishing` says what the rows are.
"""

import pytest

from strata.formats.table import FORMATS
from tests.gpu import checks_experts, checks_tiles
from tests.gpu.test_experts import columns
from tests.unit.formats.vanishing import vanishing_rows, vanishing_weights

ALL = pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
FEW, WINDOWS, CHUNKS = (1, 2, 3, 4), (5, 6, 7, 8), (9, 17, 40, 130)
"""Rows of the kernels that take dp4a, tensor cores for a window, and tiles."""


@pytest.fixture(autouse=True)
def vanishing(monkeypatch):
    """Let the checks multiply such rows and weights."""
    for room in (checks_experts, checks_tiles):
        monkeypatch.setattr(room, "random_rows", vanishing_rows)
        monkeypatch.setattr(room, "packed_weights", vanishing_weights)


@ALL
@pytest.mark.parametrize("row_counts", [FEW, WINDOWS, CHUNKS], ids=["few rows", "windows", "chunks"])
def test_a_dense_product_has_the_bits_of_the_host(row_counts, form, card, control, monkeypatch):
    checks_tiles.check_dense(card, control, monkeypatch, form, 19, columns(form), row_counts, (0,))


@ALL
def test_listed_experts_in_tiles_have_the_bits_of_the_host(form, card, control, monkeypatch):
    checks_tiles.check_listed(card, control, monkeypatch, form, 70, columns(form), (1, 3, 0, 40, 9), (0,))


@ALL
def test_the_experts_of_a_window_have_the_bits_of_the_host(form, card, control):
    for n_rows in (1, 2, 5, 8):
        checks_experts.check_gate_up(card, control, form, columns(form), 96, n_rows, 4)
        checks_experts.check_down(card, control, form, columns(form), 83, n_rows, 4)
