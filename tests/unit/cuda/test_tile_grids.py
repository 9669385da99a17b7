"""Tilings of prompt chunks: they fit into shared memory for every format, and blocks share a matrix's output tiles evenly."""

import importlib.util

import pytest

if importlib.util.find_spec("numba_cuda") is None:
    pytest.skip("the package numba-cuda is not installed", allow_module_level=True)

from strata.cuda.packed.tile_choice import CHUNK, EXPERTS, LOW
from strata.cuda.packed.tile_grids import turns_of
from strata.cuda.packed.tiles import ROOM, layout_of
from strata.formats.table import FORMATS, by_name

UNITS = 132


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
@pytest.mark.parametrize("tile", [CHUNK, EXPERTS, LOW], ids=["chunk", "experts", "low experts"])
def test_a_tile_of_every_format_fits(form, tile):
    assert layout_of(form.type_id, tile).shared_bytes <= ROOM


@pytest.mark.parametrize(
    ("tile", "n_groups", "n_out", "n_row_tiles", "turns"),
    [
        (EXPERTS, 80, 640, 938, 5), (EXPERTS, 20, 2560, 938, 8), (EXPERTS, 80, 64 * 9, 938, 5), (EXPERTS, 80, 64, 938, 1), (LOW, 20, 2560, 427, 8),
        (LOW, 80, 640, 427, 5),        (CHUNK, 80, 10240, 32, 4), (CHUNK, 80, 640, 32, 1), (CHUNK, 80, 64 * 5, 1000, 3),
    ],
)
def test_blocks_have_even_numbers_of_output_tiles(tile, n_groups, n_out, n_row_tiles, turns):
    assert turns_of(by_name("Q4_K").type_id, tile, n_groups, n_out, n_row_tiles, UNITS) == turns


def test_rows_of_fewer_stages_than_are_in_flight_take_one_tile_a_block():
    deep = type(EXPERTS)(bands=4, columns=6, sets=1, units=1, stages=4, min_blocks=1, side_by_side=6, turns=4)
    assert turns_of(by_name("Q4_0").type_id, deep, 20, 2560, 938, UNITS) == 4
    assert turns_of(by_name("Q4_0").type_id, deep, 16, 2560, 938, UNITS) == 1
