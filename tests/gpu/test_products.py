"""Every product kernel on a card against the host, bit by bit, at the row counts where kernels elsewhere change their order."""

import numpy as np
import pytest

from strata.formats.table import FORMATS
from tests.gpu.checks_projections import check_projections
from tests.gpu.support import (
    GuardedOutput, ROW_COUNTS, assert_same_bits, coded_on_host, dense_on_host, floats_on_host, folded_bits, packed_weights, padded_bytes,
    product_on_host, random_float_weights, random_rows, turned,
)
from tests.gpu.tilings import tilings

ALL = tuple(FORMATS.values())


def uploaded(card, coded):
    from strata.cuda.packed.products import Coded

    n_rows, n = coded.codes.shape
    return Coded(
        card.upload("codes", coded.codes.reshape(-1)), card.upload("codes", turned(coded.codes).reshape(-1)),
        card.upload("codes", coded.scales.reshape(-1)), card.upload("codes", coded.sums.reshape(-1)), n_rows, n,
    )


def width(form) -> int:
    """Columns: not a whole number of 256-weight units where the format allows it."""
    return 768 if form.block_weights == 256 else 704


@pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)
def test_a_dense_product_has_the_bits_of_the_host_at_every_row_count(form, card, control):
    from strata.cuda.packed.products import Packed, dense

    n_out, n_in = 83, width(form)
    raw = packed_weights(form, 1, n_out, n_in)
    weights = Packed(card.upload("weights", raw), form.type_id, n_out, n_in)
    coded = coded_on_host(control, random_rows(2, max(ROW_COUNTS), n_in))
    wanted = dense_on_host(control, form, raw, n_out, coded)
    x = uploaded(card, coded)
    for n_rows in ROW_COUNTS:
        out = GuardedOutput(card, n_rows * n_out)
        dense(card, weights, x, n_rows, out.inside).go()
        card.synchronise()
        assert_same_bits(f"{form.name}, {n_rows} rows", out.read((n_rows, n_out)), wanted[:n_rows])


@pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)
def test_every_tiling_gives_the_same_bits(form, card, control):
    from strata.cuda.packed.products import Packed, dense_tiled

    n_out, n_in = 150, width(form)
    raw = packed_weights(form, 3, n_out, n_in)
    weights = Packed(card.upload("weights", raw), form.type_id, n_out, n_in)
    coded = coded_on_host(control, random_rows(4, 130, n_in))
    wanted = dense_on_host(control, form, raw, n_out, coded)
    x = uploaded(card, coded)
    for tile in tilings():
        for n_rows in (1, 6, 130):
            out = GuardedOutput(card, n_rows * n_out)
            dense_tiled(card, weights, x, n_rows, out.inside, tile).go()
            card.synchronise()
            assert_same_bits(f"{form.name}, {tile}, {n_rows} rows", out.read((n_rows, n_out)), wanted[:n_rows])


@pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)
def test_a_window_has_the_bits_of_the_host_however_it_is_cut(form, card, control):
    """Rows that end inside a stage and inside a pair of units, blocks of several turns, outputs beyond the end, rows that are not there."""
    from strata.cuda.packed import window_kernels
    from strata.cuda.packed.products import Packed, activations
    from strata.cuda.packed.staging import staging_of
    from strata.cuda.packed.window_cuts import COPIERS, MOST_COPIES, Cut, cut_of, shared_bytes

    room, thorough = 227 << 10, form.name in ("Q4_K", "Q6_K", "Q2_0", "Q8_0")
    for n_out, n_in in ((83, width(form)), (16, 2560), *(((150, 1280),) if thorough else ())):
        raw = packed_weights(form, 41, n_out, n_in)
        weights = Packed(card.upload("weights", raw), form.type_id, n_out, n_in)
        coded = coded_on_host(control, random_rows(42, 8, n_in))
        wanted, x = dense_on_host(control, form, raw, n_out, coded), uploaded(card, coded)
        cuts = {cut_of(form.type_id, n_in // 32, (n_out,), room)}
        for turns, units, stages in ((3, 4, 3), (6, 2, 3), (2, 10, 2)) if thorough else ((3, 2, 3),):
            if staging_of(form, units).pieces <= MOST_COPIES * COPIERS:
                cuts.add(Cut(turns, units, stages, 3, shared_bytes(form.type_id, n_in // 32, units, stages)))
        for cut in cuts:
            for n_rows in range(1, 9):
                out = GuardedOutput(card, n_rows * n_out)
                window_kernels.window_launch(card, cut, (weights,), (out.inside,), activations(weights, x), n_rows).go()
                card.synchronise()
                assert_same_bits(f"{form.name} {n_out} x {n_in}, {cut}, {n_rows} rows", out.read((n_rows, n_out)), wanted[:n_rows])


def lists_on_card(card, experts, starts, entry_rows, spare: int):
    """Lists with room for `spare` more experts, filled with numbers that would be wrong to use."""
    from strata.cuda.packed.products import make_lists

    lists = make_lists(card, "lists", len(experts) + spare, len(entry_rows) + spare)
    for array, values in ((lists.experts, experts), (lists.starts, starts), (lists.entry_rows, entry_rows)):
        whole = np.full(array.size, 1 << 20, np.int32)
        whole[: len(values)] = values
        array.copy_to_device(whole)
    lists.n_listed.copy_to_device(np.array([len(experts)], np.int32))
    return lists


@pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)
def test_listed_experts_have_the_bits_of_the_host(form, card, control):
    from strata.cuda.packed.products import Packed, listed, listed_tiled, plan

    n_out, n_in, n_rows = 70, width(form), 150
    raw = packed_weights(form, 5, n_out, n_in, n_experts=6)
    row_bytes = n_in // form.block_weights * form.block_bytes
    weights = Packed(card.upload("weights", raw), form.type_id, n_out, n_in, expert_bytes=n_out * row_bytes)
    coded = coded_on_host(control, random_rows(6, n_rows, n_in))
    experts, starts = [5, 0, 2, 3], [0, 1, 3, 8, 150]
    entry_rows = np.random.default_rng(7).permutation(n_rows)
    wanted = product_on_host(control, form, raw, n_out, coded, experts, starts, entry_rows)
    x, lists = uploaded(card, coded), lists_on_card(card, experts, starts, entry_rows, 3)
    out = GuardedOutput(card, n_rows * n_out)
    listed(card, weights, x, lists, out.inside).go()
    card.synchronise()
    assert_same_bits(f"{form.name}, rows", out.read((n_rows, n_out)), wanted)
    out = GuardedOutput(card, n_rows * n_out)
    for launch in plan(card, lists, (weights,)):
        launch.go()
    listed_tiled(card, weights, x, lists, out.inside).go()
    card.synchronise()
    assert_same_bits(f"{form.name}, tiles", out.read((n_rows, n_out)), wanted)


@pytest.mark.parametrize("type_name", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("n_in", [64, 320, 1284, 2560, 10240])
def test_a_float_product_has_the_bits_of_the_host_at_every_row_count(type_name, n_in, card, control):
    from strata.cuda.packed.products import floats

    n_out = 37
    weights = random_float_weights(type_name, 8, n_out, n_in)
    x = random_rows(9, max(ROW_COUNTS), n_in)
    wanted = floats_on_host(control, type_name, weights, x)
    placed, rows = card.upload("weights", padded_bytes(weights)), card.upload("rows", x.reshape(-1))
    for n_rows in ROW_COUNTS:
        out = GuardedOutput(card, n_rows * n_out)
        floats(card, type_name, placed, n_in, n_out, rows, n_rows, out.inside).go()
        card.synchronise()
        assert_same_bits(f"{type_name}, {n_in} columns, {n_rows} rows", out.read((n_rows, n_out)), wanted[:n_rows])


@pytest.mark.parametrize(
    ("form", "float_type"), [(form, "BF16") for form in ALL] + [(FORMATS[12], "F16"), (FORMATS[12], "F32")],
    ids=lambda value: getattr(value, "name", value),
)
def test_products_launched_together_have_the_bits_of_the_host(form, float_type, card, control):
    counts = (1, 2, 3, 4) if form is FORMATS[12] else (1, 4)
    check_projections(card, control, (form,) * 3, (float_type,) * 2, (83, 16, 150, 37, 3), width(form), counts, 1)
    check_projections(card, control, (form,) * 2, (float_type,) * 2, (83, 150, 37, 3), width(form), (5, 6, 8), 2)


def test_products_of_several_kinds_have_the_bits_of_the_host(card, control):
    forms = tuple(FORMATS[i] for i in (12, 8, 12, 42))
    check_projections(card, control, forms, ("BF16", "F32", "BF16"), (83, 16, 40, 21, 37, 3, 70), 1280, (1, 2, 4, 7, 9), 7)
    check_projections(card, control, forms[:1], ("BF16",), (83, 37), 2560, (1, 4, 5, 9), 2)
    check_projections(card, control, (), ("BF16",) * 2, (324, 4), 10240, (1, 2, 3, 5, 8), 1)
    check_projections(card, control, (), ("F32",) * 2, (33, 5), 320, (1, 8), 2)


@pytest.mark.parametrize("type_name", ["BF16", "F16", "F32"])
@pytest.mark.parametrize(("n_in", "n_out"), [(256, 48), (320, 512), (324, 33), (512, 320), (1284, 48), (2560, 48), (2560, 512), (2560, 1), (10240, 320), (10240, 4)])
def test_every_kind_of_chunk_product_has_the_bits_of_the_host(type_name, n_in, n_out, card, control):
    from strata.cuda.floats import float_chunks, float_lanes, float_short_tiles, float_tiles
    from strata.cuda.packed.products import floats

    is_short, is_narrow = float_short_tiles.LEAST_COLUMNS <= n_in <= float_short_tiles.MOST_COLUMNS, n_out <= float_lanes.FEW_OUTPUTS.outputs
    fits = {"tiles": True, "short tiles": is_short, "few outputs": is_narrow, "lanes": True}
    kinds = [kind for kind in float_chunks.KINDS if fits[kind] and (float_tiles.fits(card.card.capability) or "tiles" not in kind)]
    row_counts = [n for n in ROW_COUNTS if n > 8] if type_name == "BF16" else [9, 33, 257]
    weights, x = random_float_weights(type_name, 18, n_out, n_in), random_rows(19, max(row_counts), n_in)
    wanted = floats_on_host(control, type_name, weights, x)
    placed, rows = card.upload("weights", padded_bytes(weights)), card.upload("rows", x.reshape(-1))
    for kind in (None, *kinds):
        for n_rows in row_counts:
            out = GuardedOutput(card, n_rows * n_out)
            floats(card, type_name, placed, n_in, n_out, rows, n_rows, out.inside, kind=kind).go()
            card.synchronise()
            assert_same_bits(f"{kind}, {type_name}, {n_out} x {n_in}, {n_rows} rows", out.read((n_rows, n_out)), wanted[:n_rows])


def test_blocks_that_take_many_tiles_of_rows_have_the_bits_of_the_host(card, control):
    from strata.cuda.packed.products import floats

    n_rows, n_in, n_out = 2048, 320, 1024
    weights, x = random_float_weights("BF16", 28, n_out, n_in), random_rows(29, n_rows, n_in)
    placed, rows = card.upload("weights", padded_bytes(weights)), card.upload("rows", x.reshape(-1))
    out = GuardedOutput(card, n_rows * n_out)
    floats(card, "BF16", placed, n_in, n_out, rows, n_rows, out.inside).go()
    card.synchronise()
    assert_same_bits("2048 rows", out.read((n_rows, n_out)), floats_on_host(control, "BF16", weights, x))


@pytest.mark.parametrize("span", [32, 256])
def test_coding_has_the_bits_of_the_host(span, card, control):
    from strata.cuda.packed.products import code, make_coded

    for n_rows in ROW_COUNTS:
        x = random_rows(10 + n_rows, n_rows, 640)
        x[0, :32] = np.float32(1e-31)
        x[0, 32:64] = np.float32(-0.0)
        wanted = coded_on_host(control, x, span)
        coded = make_coded(card, "codes", n_rows, 640)
        spans = None if span == 32 else card.upload("spans", np.full(n_rows, span, np.int32))
        code(card, card.upload("x", x.reshape(-1)), coded, n_rows, spans).go()
        card.synchronise()
        assert np.array_equal(coded.codes.copy_to_host().reshape(n_rows, -1), wanted.codes)
        assert np.array_equal(coded.turned.copy_to_host().reshape(n_rows, -1), turned(wanted.codes))
        assert np.array_equal(coded.sums.copy_to_host().reshape(n_rows, -1), wanted.sums)
        assert_same_bits(f"scales of {n_rows} rows", coded.scales.copy_to_host().reshape(n_rows, -1), wanted.scales)


def test_a_changed_code_changes_the_bits(card, control):
    """The comparison can fail: one code of one row moved by one."""
    from strata.cuda.packed.products import Packed, dense

    form, n_out, n_in = FORMATS[12], 40, 512
    raw = packed_weights(form, 11, n_out, n_in)
    coded = coded_on_host(control, random_rows(12, 2, n_in))
    wanted = dense_on_host(control, form, raw, n_out, coded)
    coded.codes[1, 100] += 1 if coded.codes[1, 100] < 127 else -1
    out = GuardedOutput(card, 2 * n_out)
    dense(card, Packed(card.upload("weights", raw), form.type_id, n_out, n_in), uploaded(card, coded), 2, out.inside).go()
    card.synchronise()
    got = out.read((2, n_out))
    assert_same_bits("the other row", got[:1], wanted[:1])
    assert (folded_bits(got[1]) != folded_bits(wanted[1])).any()
