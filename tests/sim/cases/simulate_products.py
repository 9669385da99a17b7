"""Product kernels at toy sizes: every kind of unpacking, ragged tails, rows and outputs beyond the end, guard bands."""

import numpy as np
import pytest

from strata.cuda.packed.products import Coded, Packed, code, dense, dense_tiled, floats, listed, listed_tiled, make_coded, make_lists, plan
from strata.cuda.packed.tile_choice import EXPERTS, LOW, WINDOW, experts_tile
from strata.cuda.packed.tiles import Tile
from strata.formats.table import by_name
from tests.gpu import checks_tiles
from tests.gpu.checks_projections import check_projections
from tests.gpu.checks_tiles import check_dense, check_listed, plan_taller
from tests.gpu.support import (
    GuardedOutput, assert_same_bits, coded_on_host, dense_on_host, floats_on_host, packed_weights, padded_bytes, product_on_host,
    random_float_weights, random_rows, turned,
)
from tests.unit.formats.vanishing import vanishing_rows, vanishing_weights

SMALL_TILE = Tile(bands=1, columns=2, sets=1, units=1, stages=2, min_blocks=1, side_by_side=2)


def uploaded(card, coded):
    n_rows, n = coded.codes.shape
    arrays = (coded.codes, turned(coded.codes), coded.scales, coded.sums)
    return Coded(*(card.upload("codes", a.reshape(-1)) for a in arrays), n_rows, n)


@pytest.mark.parametrize(("name", "n_in"), [("Q4_K", 768), ("Q2_0", 320), ("Q8_0", 1120), ("Q6_K", 256), ("IQ2_S", 512), ("Q5_1", 96)])
@pytest.mark.parametrize("n_rows", [1, 3])
def test_few_rows(name, n_in, n_rows, card, control):
    form, n_out = by_name(name), 18
    raw = packed_weights(form, 1, n_out, n_in)
    coded = coded_on_host(control, random_rows(2, n_rows, n_in))
    out = GuardedOutput(card, n_rows * n_out)
    dense(card, Packed(card.upload("weights", raw), form.type_id, n_out, n_in), uploaded(card, coded), n_rows, out.inside).go()
    assert_same_bits(name, out.read((n_rows, n_out)), dense_on_host(control, form, raw, n_out, coded))


@pytest.mark.parametrize(("name", "n_in", "n_out", "n_rows"), [
    ("Q4_K", 768, 18, 5), ("Q4_K", 1280, 16, 8), ("Q2_0", 320, 33, 8), ("Q8_0", 1120, 18, 7), ("Q6_K", 256, 18, 6), ("Q3_K", 768, 18, 8), ("Q5_1", 96, 3, 8),
])
def test_a_warp_a_lane(name, n_in, n_out, n_rows, card, control, monkeypatch):
    """Several turns a block; rows that end inside a pair of units."""
    from strata.cuda.packed import window_cuts

    monkeypatch.setattr(window_cuts, "ONE_WAVE", 1)
    form = by_name(name)
    raw = packed_weights(form, 1, n_out, n_in)
    coded = coded_on_host(control, random_rows(2, n_rows, n_in))
    out = GuardedOutput(card, n_rows * n_out)
    launch = dense(card, Packed(card.upload("weights", raw), form.type_id, n_out, n_in), uploaded(card, coded), n_rows, out.inside)
    assert launch.shape.n_threads == window_cuts.THREADS
    launch.go()
    assert_same_bits(name, out.read((n_rows, n_out)), dense_on_host(control, form, raw, n_out, coded))


@pytest.mark.parametrize(("name", "n_in"), [("Q4_K", 512), ("Q2_0", 320), ("Q4_0", 288), ("Q8_0", 288), ("Q3_K", 256)])
@pytest.mark.parametrize(("tile", "n_rows"), [(WINDOW, 5), (SMALL_TILE, 17)])
def test_tiles(name, n_in, tile, n_rows, card, control):
    form, n_out = by_name(name), 18
    raw = packed_weights(form, 3, n_out, n_in)
    coded = coded_on_host(control, random_rows(4, n_rows, n_in))
    out = GuardedOutput(card, n_rows * n_out)
    weights = Packed(card.upload("weights", raw), form.type_id, n_out, n_in)
    dense_tiled(card, weights, uploaded(card, coded), n_rows, out.inside, tile).go()
    assert_same_bits(name, out.read((n_rows, n_out)), dense_on_host(control, form, raw, n_out, coded))


@pytest.mark.parametrize(("name", "n_in"), [("Q4_K", 256), ("Q8_0", 288)])
def test_a_tile_of_64_outputs(name, n_in, card, control):
    """Threads that unpack the scales of two output rows each."""
    form, n_out, n_rows = by_name(name), 66, 7
    raw = packed_weights(form, 13, n_out, n_in)
    coded = coded_on_host(control, random_rows(14, n_rows, n_in))
    out = GuardedOutput(card, n_rows * n_out)
    weights = Packed(card.upload("weights", raw), form.type_id, n_out, n_in)
    dense_tiled(card, weights, uploaded(card, coded), n_rows, out.inside, Tile(4, 1, 1, 1, 2, 1)).go()
    assert_same_bits(name, out.read((n_rows, n_out)), dense_on_host(control, form, raw, n_out, coded))


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "Q2_0", "Q5_1"])
@pytest.mark.parametrize(("row_counts", "tile"), [((3, 8), None), ((9,), SMALL_TILE)], ids=["windows", "tiles"])
def test_products_that_vanish(name, row_counts, tile, card, control, monkeypatch):
    monkeypatch.setattr(checks_tiles, "random_rows", vanishing_rows)
    monkeypatch.setattr(checks_tiles, "packed_weights", vanishing_weights)
    check_dense(card, control, monkeypatch, by_name(name), 18, 256, row_counts, (0,), tile)


@pytest.mark.parametrize(("name", "n_in"), [("Q4_K", 512), ("Q2_0", 320)])
def test_output_tiles_in_turn(name, n_in, card, control, monkeypatch):
    """Stages are copied ahead across the end of a tile; the last block has one tile less."""
    tile = Tile(bands=1, columns=2, sets=1, units=1, stages=2, min_blocks=1, side_by_side=2, turns=2)
    check_dense(card, control, monkeypatch, by_name(name), 36, n_in, (17,), (2,), tile)
    check_listed(card, control, monkeypatch, by_name(name), 34, n_in, (1, 0, 17), (2,), tile)


@pytest.mark.parametrize(("name", "n_in"), [("Q4_K", 256), ("Q2_0", 320)])
def test_columns_without_rows_are_left_out(name, n_in, card, control, monkeypatch):
    """Experts whose last tile has one column of eight rows, a part of one, or several."""
    tile = Tile(bands=1, columns=3, sets=1, units=1, stages=2, min_blocks=1, side_by_side=1, turns=2)
    check_listed(card, control, monkeypatch, by_name(name), 18, n_in, (8, 0, 9, 17), (1,), tile)


@pytest.mark.parametrize(("name", "tile"), [("Q2_0", LOW), ("Q5_1", EXPERTS)])
def test_tiles_that_a_card_takes(name, tile, card, control, monkeypatch):
    """An expert of a full tile and one row, one without rows, two output tiles in turn; the choice is the card's own."""
    form = by_name(name)
    assert experts_tile(card.card.capability, form.type_id) == tile
    check_listed(card, control, monkeypatch, form, 66, 64, (tile.n_rows + 1, 0, 3), (2,))


def test_a_plan_of_another_height_is_noticed(card, control, monkeypatch):
    tile = Tile(bands=1, columns=2, sets=1, units=1, stages=2, min_blocks=1, side_by_side=2)
    check_listed(card, control, monkeypatch, by_name("Q2_0"), 18, 64, (3, 20), (0,), tile)
    plan_taller(monkeypatch)
    with pytest.raises(AssertionError, match="differ"):
        check_listed(card, control, monkeypatch, by_name("Q2_0"), 18, 64, (3, 20), (0,), tile)


def test_listed_experts(card, control):
    form, n_out, n_in = by_name("Q5_K"), 17, 256
    raw = packed_weights(form, 5, n_out, n_in, n_experts=3)
    weights = Packed(card.upload("weights", raw), form.type_id, n_out, n_in, expert_bytes=n_out * form.block_bytes)
    coded = coded_on_host(control, random_rows(6, 4, n_in))
    experts, starts, entry_rows = [2, 0], [0, 3, 4], [0, 2, 1, 3]
    lists = make_lists(card, "lists", 3, 4)
    for array, values in ((lists.experts, experts), (lists.starts, starts), (lists.entry_rows, entry_rows), (lists.n_listed, [2])):
        array[: len(values)] = np.array(values, np.int32)
    wanted = product_on_host(control, form, raw, n_out, coded, experts, starts, entry_rows)
    x = uploaded(card, coded)
    out = GuardedOutput(card, 4 * n_out)
    listed(card, weights, x, lists, out.inside).go()
    assert_same_bits("rows", out.read((4, n_out)), wanted)
    out = GuardedOutput(card, 4 * n_out)
    for launch in plan(card, lists, (weights,)):
        launch.go()
    listed_tiled(card, weights, x, lists, out.inside).go()
    assert_same_bits("tiles", out.read((4, n_out)), wanted)


@pytest.mark.parametrize("type_name", ["BF16", "F16", "F32"])
@pytest.mark.parametrize(("n_in", "n_rows"), [(64, 2), (1284, 3), (1288, 7), (324, 9), (2560, 1), (2560, 2)])
def test_float_products(type_name, n_in, n_rows, card, control):
    n_out = 5
    weights, x = random_float_weights(type_name, 8, n_out, n_in), random_rows(9, n_rows, n_in)
    out = GuardedOutput(card, n_rows * n_out)
    placed = card.upload("weights", padded_bytes(weights))
    floats(card, type_name, placed, n_in, n_out, card.upload("x", x.reshape(-1)), n_rows, out.inside).go()
    assert_same_bits(type_name, out.read((n_rows, n_out)), floats_on_host(control, type_name, weights, x))


@pytest.mark.parametrize(
    ("names", "floats", "n_in", "n_rows", "most"),
    [
        (("Q4_K",) * 3, ("BF16",) * 2, 256, 1, 1), (("Q2_0",) * 2, ("F32",), 320, 2, 1), (("Q4_K",) * 3, ("BF16",) * 2, 256, 5, 2),
        (("Q4_K", "Q8_0"), ("F16", "BF16"), 256, 1, 2), ((), ("F16",) * 2, 1056, 1, 1), ((), ("BF16",) * 2, 1056, 5, 1),
    ],
)
def test_products_launched_together(names, floats, n_in, n_rows, most, card, control):
    forms = tuple(by_name(name) for name in names)
    n_outs = (18, 5, 16)[: len(forms)] + (3, 2)[: len(floats)]
    check_projections(card, control, forms, floats, n_outs, n_in, (n_rows,), most)


@pytest.mark.parametrize(("kind", "type_name", "n_in"), [
    ("tiles", "BF16", 324), ("tiles", "BF16", 1280), ("tiles", "F16", 1300), ("tiles", "F32", 1284), ("short tiles", "BF16", 320), ("short tiles", "F16", 324),
    ("few outputs", "BF16", 324), ("lanes", "F32", 324),
])
def test_float_products_of_chunks(kind, type_name, n_in, card, control, monkeypatch):
    """Every kind of kernel, with rows and outputs beyond the end; one block takes several tiles of rows in turn."""
    monkeypatch.setattr("strata.cuda.floats.float_short_tiles.BLOCKS", 1)
    n_rows, n_out = 33 if kind == "short tiles" else 17, 3 if kind == "few outputs" else 33
    weights, x = random_float_weights(type_name, 8, n_out, n_in), random_rows(9, n_rows, n_in)
    out = GuardedOutput(card, n_rows * n_out)
    placed = card.upload("weights", padded_bytes(weights))
    floats(card, type_name, placed, n_in, n_out, card.upload("x", x.reshape(-1)), n_rows, out.inside, kind=kind).go()
    assert_same_bits(kind, out.read((n_rows, n_out)), floats_on_host(control, type_name, weights, x))


@pytest.mark.parametrize("span", [32, 256])
def test_coding(span, card, control):
    x = random_rows(10, 3, 320)
    wanted, coded = coded_on_host(control, x, span), make_coded(card, "codes", 3, 320)
    spans = None if span == 32 else card.upload("spans", np.full(3, span, np.int32))
    code(card, card.upload("x", x.reshape(-1)), coded, 3, spans).go()
    assert np.array_equal(coded.codes.copy_to_host().reshape(3, -1), wanted.codes)
    assert np.array_equal(coded.turned.copy_to_host().reshape(3, -1), turned(wanted.codes))
    assert np.array_equal(coded.sums.copy_to_host().reshape(3, -1), wanted.sums)
    assert_same_bits("scales", coded.scales.copy_to_host().reshape(3, -1), wanted.scales)
