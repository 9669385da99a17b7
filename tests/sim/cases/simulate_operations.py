"""The operations beside the products at toy sizes: logic, bounds and guard bands."""

from dataclasses import replace

import pytest

from strata.formats.table import by_name
from tests.gpu import checks_attention, checks_gdn, checks_small, checks_streams
from tests.gpu.geometry import TOY, single_rows, window_of


def test_write_and_norm(card, control):
    checks_streams.check_write_and_norm(card, control, TOY, (1, 2))


@pytest.mark.parametrize(("type_name", "row_counts"), [("BF16", (17,)), ("F16", (1, 3)), ("F32", (2,))])
def test_the_fused_read(type_name, row_counts, card, control):
    checks_streams.check_read(card, control, TOY, type_name, row_counts)


def test_combine_and_activation(card, control):
    checks_streams.check_combine(card, control, TOY, (2,))
    checks_streams.check_activation(card, control, TOY, 3)


def test_a_window_of_the_gated_delta_net(card, control):
    checks_gdn.check_window(card, control, TOY, window_of((2, 5, 2), (0, 9, 1)), 1)


def test_a_warp_that_prepares_rows_of_several_segments(card, control, monkeypatch):
    monkeypatch.setattr("strata.cuda.delta_net.chunk_prepare.FEW_ROWS", 0)
    checks_gdn.check_window(card, control, TOY, window_of((2, 5, 3), (0, 0, 7), (1, 1, 2)), 1)


@pytest.mark.parametrize(("keep", "n_at_once"), [(True, 1), (False, 2)])
def test_a_decode_window_of_the_gated_delta_net(keep, n_at_once, card, control):
    checks_gdn.check_window_scan(card, control, TOY, window_of((2, 5, 3), (0, 1, 1), keep=keep), 1, n_at_once)


def test_a_decode_window_with_its_memory_in_shared_memory(card, control):
    """Five rows: more than go together."""
    checks_gdn.check_window_scan(card, control, TOY, window_of((2, 5, 5), (0, 1, 1)), 1, 3)


@pytest.mark.parametrize(("segments", "n_held"), [(((2, 5, 3), (0, 9, 1)), 2), (((1, 0, 19),), 2), (((1, 0, 9),), 1)])
def test_a_chunk_of_the_gated_delta_net(segments, n_held, card, control, monkeypatch):
    """Several segments; more tokens than travel together; columns of two heads or of one in a thread."""
    monkeypatch.setattr("strata.cuda.delta_net.chunk_scan.MOST_WINDOW_ROWS", 0)
    checks_gdn.check_window(card, control, TOY, window_of(*segments), 1, n_held)


def test_a_replay(card, control):
    checks_gdn.check_replay(card, control, TOY, window_of((1, 5, 2), (3, 9, 1), keep=False), [1, 0], 1)


@pytest.mark.parametrize(("kv", "raw"), [("f16", "f16"), ("int8", "f16"), ("f32", "f32")])
def test_heads(kv, raw, card, control):
    windows = [window_of((1, 0, 3)), window_of((1, 3, 3), (0, 0, 1))]
    checks_attention.check_heads(card, control, TOY, kv, raw, windows, 2, 8)


def test_dense_heads(card):
    checks_attention.check_dense_heads(card, TOY, single_rows(2, (3, 1)), 2, 8)


@pytest.mark.parametrize("ties", [False, True])
def test_selection(ties, card, control):
    checks_attention.check_selection(card, control, TOY, single_rows(4, (20, 34, 37, 150)), 160, ties)


@pytest.mark.parametrize("cuts", [((32, 2),), ()], ids=["two keys a thread", "digits"])
def test_selection_among_more_blocks_than_threads(cuts, card, control, monkeypatch):
    monkeypatch.setattr("strata.cuda.attention.narrow_selection.CUTS", cuts)
    for ties in (False, True):
        checks_attention.check_selection(card, control, TOY, single_rows(4, (20, 34, 37, 150)), 160, ties)


def test_the_merge_of_more_splits_than_travel_at_once(card, control):
    checks_attention.check_merge(card, control, replace(TOY, head_dim=32), [64, 65 * 64 + 1], 70 * 64, 1)


@pytest.mark.parametrize("kv", ["f16", "int8", "f32"])
def test_attention(kv, card, control):
    checks_attention.check_attention(card, control, TOY, kv, single_rows(1, (68,)), 72, 3)


@pytest.mark.parametrize(("kv", "many_rows"), [("f16", 1), ("int8", 2)])
def test_attention_of_a_key_heads_group_and_of_a_part_of_it(kv, many_rows, card, control, monkeypatch):
    monkeypatch.setattr("strata.cuda.attention.window_attention.MANY_ROWS", many_rows)
    config = replace(TOY, n_q_heads=24, n_kv_heads=2)
    checks_attention.check_attention(card, control, config, kv, single_rows(1, (66,)), 70, 4)


@pytest.mark.parametrize("segments", [((0, 61, 6),), ((1, 30, 4), (0, 33, 3))], ids=["tiles", "tiles and rows"])
@pytest.mark.parametrize("kv", ["f16", "int8"])
def test_attention_of_a_chunk(kv, segments, card, control):
    checks_attention.check_attention(card, control, TOY, kv, window_of(*segments), 72, 5)


def test_attention_of_a_chunk_whose_teams_have_twelve_heads(card, control):
    config = replace(TOY, n_q_heads=12, head_dim=32)
    checks_attention.check_attention(card, control, config, "f16", window_of((0, 126, 4)), 130, 6)


def test_routing(card):
    checks_small.check_routing(card, TOY, (1, 3))


def test_routing_of_many_rows(card, monkeypatch):
    monkeypatch.setattr("strata.cuda.experts.routing.MOST_TOGETHER", 4)
    checks_small.check_routing(card, TOY, (70,))


@pytest.mark.parametrize("name", ["Q4_K", "Q2_0", "IQ4_NL", "Q5_1"])
def test_lookup(name, card):
    checks_small.check_lookup(card, by_name(name), 256, 2)


def test_float_lookup(card):
    for name in ("F32", "F16", "BF16"):
        checks_small.check_float_lookup(card, name, 40)


def test_ngrams(card):
    checks_small.check_ngrams(card, TOY, window_of((4, 7, 3), (1, 2, 1)), 1)


def test_draft_picks(card):
    checks_small.check_drafts(card, TOY, 2, 70)
