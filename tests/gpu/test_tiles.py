"""Tiles of prompt chunks on a card against the host: row counts around their heights, output tiles in turn, lists of any lengths."""

import pytest

from strata.formats.table import FORMATS, by_name
from tests.gpu import checks_tiles
from tests.gpu.checks_tiles import check_dense, check_listed, plan_taller

ALL = pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
ROWS = (9, 10, 23, 24, 25, 40, 47, 48, 49, 63, 64, 65, 95, 96, 97, 130)
COUNTS = (1, 0, 48, 7, 49, 40, 0, 2, 97, 33)
LOW_FORMATS = ("Q2_0", "Q4_0", "Q5_0", "Q8_0", "IQ4_NL")
AROUND_LOW_TILES = (46, 47, 48, 0, 49, 50, 95, 96, 97, 143, 144, 145)
AROUND_COLUMNS = (8, 9, 16, 0, 17, 24, 25, 56, 57, 63, 64, 65, 72, 73, 128, 129)
"""Rows of experts around the ends of columns of eight, where a tile leaves out those without rows."""


def columns(form) -> int:
    """Columns: not a whole number of 256-weight units where the format allows it."""
    return 768 if form.block_weights == 256 else 704


@ALL
def test_rows_around_a_tile_and_output_tiles_in_turn(form, card, control, monkeypatch):
    check_dense(card, control, monkeypatch, form, 150, columns(form), ROWS, (0,))
    check_dense(card, control, monkeypatch, form, 64 * 5 + 19, columns(form), (9, 33, 65), (1, 2, 3, 4))


@pytest.mark.parametrize("name", ["Q4_K", "Q2_0", "Q4_0", "Q8_0", "Q6_K"])
def test_rows_shorter_and_longer_than_a_stage(name, card, control, monkeypatch):
    form = by_name(name)
    for n_in in (256, 512, 768, 1024, 2560) if form.block_weights == 256 else (64, 256, 320, 512, 640, 2560):
        check_dense(card, control, monkeypatch, form, 64 * 3 + 1, n_in, (11, 50), (1, 2, 4))


@pytest.mark.parametrize("name", ["Q4_K", "Q2_0"])
def test_long_chunks(name, card, control, monkeypatch):
    check_dense(card, control, monkeypatch, by_name(name), 600, 512, (2047, 2048), (0, 4))


@ALL
def test_listed_experts_of_any_number_of_rows(form, card, control, monkeypatch):
    check_listed(card, control, monkeypatch, form, 70, columns(form), COUNTS, (0,))
    check_listed(card, control, monkeypatch, form, 64 * 5 + 6, columns(form), COUNTS, (1, 3, 8))


@pytest.mark.parametrize("name", ["Q4_K", "Q2_0", "Q3_K"])
def test_listed_experts_around_the_ends_of_columns(name, card, control, monkeypatch):
    form = by_name(name)
    check_listed(card, control, monkeypatch, form, 64 * 2 + 5, columns(form), AROUND_COLUMNS, (1, 2))


@pytest.mark.parametrize("tile", ["LOW", "EXPERTS"])
@pytest.mark.parametrize("name", LOW_FORMATS)
def test_formats_of_low_tiles_have_the_bits_of_the_host_in_both_tilings(name, tile, card, control, monkeypatch):
    from strata.cuda.packed import tile_choice

    form = by_name(name)
    check_listed(card, control, monkeypatch, form, 64 * 3 + 9, columns(form), AROUND_LOW_TILES, (1, 2, 4), getattr(tile_choice, tile))


@pytest.mark.parametrize("tile", ["LOW", "EXPERTS"])
def test_tiles_cut_for_another_height_are_noticed(tile, card, control, monkeypatch):
    from strata.cuda.packed import tile_choice

    tile = getattr(tile_choice, tile)

    def check():
        check_listed(card, control, monkeypatch, by_name("Q2_0"), 70, 320, (3, 20, tile.n_rows + 5), (1,), tile)

    check()
    plan_taller(monkeypatch)
    with pytest.raises(AssertionError, match="differ"):
        check()


@pytest.mark.parametrize("name", ["Q2_0", "Q4_0", "Q8_0"])
def test_listed_experts_of_the_real_geometry(name, card, control, monkeypatch):
    check_listed(card, control, monkeypatch, by_name(name), 2560, 640, (40, 1, 51, 300), (0, 8))
    check_listed(card, control, monkeypatch, by_name(name), 640, 2560, (40, 1, 51, 300), (0, 8))


@pytest.mark.parametrize("rows", ["dense", "listed"])
def test_a_single_changed_bit_is_noticed(rows, card, control, monkeypatch):
    honest = checks_tiles.GuardedOutput.read

    def changed(self, shape):
        values = honest(self, shape)
        values.reshape(-1).view("int32")[-1] ^= 1
        return values

    def check():
        if rows == "dense":
            check_dense(card, control, monkeypatch, by_name("Q2_0"), 70, 320, (9,), (1,))
        else:
            check_listed(card, control, monkeypatch, by_name("Q2_0"), 70, 320, (3, 0, 1), (1,))

    check()
    monkeypatch.setattr(checks_tiles.GuardedOutput, "read", changed)
    with pytest.raises(AssertionError, match="differ"):
        check()
