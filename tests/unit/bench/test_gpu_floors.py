"""The floors of the card's benchmark at the real geometry, against figures computed by hand from MODEL.md."""

import pytest

from strata.bench.gpu.floors import expert_bytes, floor_of, load_of, operations_of
from strata.bench.gpu.geometry import REAL, with_layers
from strata.bench.gpu.specs import Writer, fitting, specs_in
from strata.errors import UsageError

WEIGHTS = Writer(REAL, "Q4_K", "Q2_0", "Q6_K").weights()
ROW = 2560 * 9 // 16
"""Bytes of a row of 2,560 weights in Q4_K, 4.5 bits each."""


def test_an_expert_in_q2_0_has_the_bytes_of_the_model_files():
    assert expert_bytes(WEIGHTS) == 1_382_400


def test_rows_that_blocks_do_not_divide_take_another_format():
    assert fitting("Q4_K", 640) == "Q4_0" and fitting("Q4_K", 2560) == "Q4_K" and fitting("q2_0", 640) == "Q2_0"
    assert fitting("IQ3_S", 640) == "IQ4_NL" and fitting("BF16", 640) == "BF16"
    down = Writer(REAL, "Q4_K", "Q4_K", "Q6_K").weights().layers[0].moe.down
    assert (down.type_name, down.shape, down.n_bytes) == ("Q4_0", (512, 2560, 640), 512 * 2560 * 640 * 9 // 16)


def test_the_parts_of_one_row():
    floor = floor_of(REAL, WEIGHTS, load_of(REAL, [(3000, 1)], 1, 480))
    mixer = 2 * (2 * 320 * 10240 + 4 * 10240) + 10240 * 4
    moe = 512 * 2560 * 2 + 2560 * 2 + 2 * 640 * ROW + 2560 * 360
    gdn = (10240 + 6144) * ROW + 2560 * 6144 * 9 // 16 + 2 * 48 * 2560 * 2 + (10240 * 4 + 48 + 48 + 128) * 4
    qsa = (12288 + 512 + 512) * ROW + 2560 * 6144 * 9 // 16 + (512 + 128) * 2560 * 2 + (2 * 256 + 2 * 128) * 4
    ngrams = 10240 * ROW + 2560 * 2560 * 2 + (3 * 10240 + 10240 * 4) * 4
    assert floor.dense == 48 * (2 * mixer + moe) + 36 * gdn + 12 * qsa + ngrams
    assert floor.head == 248320 * 2100 + 2 * 320 * 10240 * 2 + 10240 * 4
    assert floor.experts == 480 * 1_382_400
    assert floor.state == 2 * 36 * (48 * 128 * 128 + 3 * 10240) * 4
    assert floor.cells == 12 * ((2051 + 1) * 2 * 512 * 2 + 750 * 128 * 4)
    assert floor.tables == ROW + 16 * 170
    assert floor.total == sum((floor.dense, floor.experts, floor.head, floor.state, floor.cells, floor.tables))


def test_rows_of_other_conversations_add_state_and_cells_but_no_dense_weights():
    one, eight = (floor_of(REAL, WEIGHTS, load_of(REAL, [(3000, 1)] * n, n, 480 * n)) for n in (1, 8))
    assert (eight.dense, eight.head) == (one.dense, one.head)
    assert (eight.state, eight.cells, eight.tables, eight.experts) == tuple(8 * x for x in (one.state, one.cells, one.tables, one.experts))


def test_a_chunk_reads_its_own_cells_once_and_scores_none_below_the_selection():
    load = load_of(REAL, [(0, 2048)], 1, 0)
    assert (load.cells, load.scored, load.scored_pairs, load.n_slots) == (2048, 0, 0, 1)
    assert load.pairs == 2048 * 2049 // 2
    late = load_of(REAL, [(4096, 4)], 1, 0)
    assert (late.cells, late.pairs, late.scored) == (4100, 4 * 2051, 1025)
    assert late.scored_pairs == 1024 * 3 + 1025


def test_operations_count_two_for_each_packed_weight_and_row():
    config = with_layers(REAL, 4)
    weights = Writer(config, "Q4_K", "Q2_0", "Q6_K").weights()
    one, two = (operations_of(config, weights, load_of(config, [(0, n)], 0, 0)) for n in (1, 2))
    dense = [s for layer in weights.layers for s in specs_in(layer) if s.is_quantised and len(s.shape) == 2]
    assert one.int8 == 2 * (sum(s.n_weights for s in dense) + 4 * 10 * 3 * 640 * 2560)
    assert two.int8 == 2 * one.int8 and one.fused > 0
    with_head = operations_of(config, weights, load_of(config, [(0, 1)], 1, 0))
    assert with_head.int8 - one.int8 == 2 * 248320 * 2560


def test_a_geometry_without_a_kind_of_layer_is_refused():
    assert len(with_layers(REAL, 8).qsa_layers) == 2
    for n in (3, 49):
        with pytest.raises(UsageError, match=f"layers={n}"):
            with_layers(REAL, n)
