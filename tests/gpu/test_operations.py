"""Every operation beside the products on a card against the host, bit by bit, at the real and the fixture's geometry.

Neighbours hold infinities, NaN and huge values, foreign slots and unwritten cells NaN, surplus segment places numbers that
would leave every buffer.
"""

import numpy as np
import pytest

from strata.formats.table import FORMATS
from tests.gpu import checks_attention, checks_gdn, checks_small, checks_streams
from tests.gpu.geometry import GEOMETRIES, REAL, SMALL, single_rows, window_of
from tests.gpu.support import ROW_COUNTS, GuardedOutput

BOTH = pytest.mark.parametrize("config", GEOMETRIES.values(), ids=GEOMETRIES)
CELL_KINDS = pytest.mark.parametrize(("kv", "raw"), [("f16", "f16"), ("int8", "f16"), ("f32", "f32")])


@BOTH
def test_stream_writes_and_norms_have_the_bits_of_the_host_at_every_row_count(config, card, control):
    checks_streams.check_write_and_norm(card, control, config, ROW_COUNTS)


@BOTH
@pytest.mark.parametrize("type_name", ["BF16", "F16", "F32"])
def test_stream_reads_have_the_bits_of_the_host_at_every_row_count(config, type_name, card, control):
    checks_streams.check_read(card, control, config, type_name, ROW_COUNTS if type_name == "BF16" else (1, 17, 33))


@BOTH
def test_combined_experts_have_the_bits_of_the_host_at_every_row_count(config, card, control):
    checks_streams.check_combine(card, control, config, ROW_COUNTS)
    checks_streams.check_activation(card, control, config, 77)


@BOTH
def test_a_window_of_one_session_has_the_bits_of_the_host_at_every_row_count(config, card, control):
    for n_rows in ROW_COUNTS:
        checks_gdn.check_window(card, control, config, window_of((3, 11, n_rows)), n_rows)


@BOTH
def test_windows_of_several_sessions_have_the_bits_of_the_host(config, card, control):
    for number, segments in enumerate((((4, 0, 1), (1, 9, 1), (0, 2, 1)), ((2, 7, 3), (0, 5, 5), (4, 1, 1)), ((1, 3, 70), (4, 6, 2), (0, 9, 60)))):
        checks_gdn.check_window(card, control, config, window_of(*segments), 50 + number)
    checks_gdn.check_window(card, control, config, window_of((2, 4, 100), (0, 1, 3), keep=False), 60)


@BOTH
@pytest.mark.parametrize("n_held", [1, 3])
def test_chunks_have_the_bits_of_the_host_however_many_heads_a_thread_holds(config, n_held, card, control):
    """Every remainder of the tokens that travel together; long and short segments; kept or not."""
    for n_rows in range(65, 73):
        checks_gdn.check_window(card, control, config, window_of((3, 11, n_rows), keep=n_rows % 3 > 0), n_rows, n_held)
    checks_gdn.check_window(card, control, config, window_of((1, 3, 70), (4, 6, 1), (0, 9, 8), (2, 0, 2)), 61, n_held)


@BOTH
@pytest.mark.parametrize(("keep", "n_at_once"), [(True, 1), (True, 2), (True, 3), (False, 1), (False, 2)])
def test_decode_windows_of_the_delta_net_have_the_bits_of_the_host(config, keep, n_at_once, card, control):
    if n_at_once == 3 and not card.target.bulk_copies:
        pytest.skip("three heads at once need bulk copies: compute capability 9.0 to 11.x")
    rows = [tuple((slot, 7 + slot, 1) for slot in range(n)) for n in range(1, 6)]
    segments = [((3, 11, n),) for n in range(1, 9)] + rows + [((4, 0, 1), (1, 9, 2), (0, 2, 1)), ((2, 7, 3), (0, 1, 4), (4, 1, 1))]
    for number, one in enumerate(segments):
        checks_gdn.check_window_scan(card, control, config, window_of(*one, keep=keep), 70 + number, n_at_once)


@BOTH
@pytest.mark.parametrize("keep", [True, False])
def test_decode_windows_have_the_bits_of_the_host_where_the_launch_chooses(config, keep, card, control):
    for number, one in enumerate([((3, 0, 1),), ((1, 9, 1), (4, 2, 1), (0, 0, 1)), ((2, 3, 2), (0, 1, 1), (5, 0, 5))]):
        checks_gdn.check_window_scan(card, control, config, window_of(*one, keep=keep), 90 + number)


@BOTH
def test_the_replay_of_kept_rows_has_the_bits_of_the_host(config, card, control):
    window = window_of((2, 7, 4), (0, 5, 4), (4, 1, 3), (1, 8, 2), keep=False)
    checks_gdn.check_replay(card, control, config, window, [4, 1, 0, 2], n_layers=3)


@BOTH
@CELL_KINDS
def test_heads_and_cells_have_the_bits_of_the_host(config, kv, raw, card, control):
    windows = [window_of((3, 0, 70), (1, 0, 2)), window_of((1, 2, 1), (3, 70, 3)), window_of((0, 5, 9), (3, 71, 2), (1, 3, 6))]
    checks_attention.check_heads(card, control, config, kv, raw, windows, 4, 96)
    checks_attention.check_dense_heads(card, config, single_rows(3, (9, 0, 4)), 3, 12)


@BOTH
@pytest.mark.parametrize("ties", [False, True])
def test_selected_cells_are_those_of_the_host_at_every_row_count(config, ties, card, control):
    width, block, n_cells = config.selection_width, config.indexer_block, 3 * config.selection_width
    lengths = (width, width + 1, width + 2, width + 3, width + 4, 2 * width, n_cells, 5, n_cells - block + 1)
    for n_rows in (1, 9, 33):
        positions = [lengths[row % len(lengths)] - 1 for row in range(n_rows)]
        checks_attention.check_selection(card, control, config, single_rows(n_rows, positions), n_cells, ties)


@pytest.mark.parametrize("ties", [False, True])
def test_selected_cells_are_those_of_the_host_in_every_cut(ties, card, control):
    from strata.cuda.attention.narrow_selection import CUTS

    for number, (n_threads, n_keys) in enumerate(CUTS):
        n_cells = n_threads * n_keys * SMALL.indexer_block
        lengths = [n_cells, n_cells - 1, n_cells - 3, max(n_cells // 2 + 1, SMALL.selection_width), SMALL.selection_width + 1 + number]
        positions = [min(length, n_cells) - 1 for length in lengths]
        checks_attention.check_selection(card, control, SMALL, single_rows(len(positions), positions), n_cells, ties)


def test_cells_of_a_long_context_are_those_of_the_host(card, control):
    checks_attention.check_selection(card, control, REAL, single_rows(2, (65_001, 131_071)), 131_072, ties=False)
    checks_attention.check_selection(card, control, REAL, single_rows(1, (131_069,)), 131_072, ties=True)


@BOTH
@pytest.mark.parametrize("kv", ["f16", "int8", "f32"])
def test_attention_has_the_bits_of_the_host(config, kv, card, control):
    most = config.selection_width + 200
    lengths = (1, 63, 64, 65, 129, most, config.selection_width, 200)
    counts = (1, 8, 33) if config is SMALL else (1, 8)
    for n_rows in counts:
        positions = [lengths[-row % len(lengths) - 3] - 1 for row in range(n_rows)]
        checks_attention.check_attention(card, control, config, kv, single_rows(n_rows, positions), most, n_rows)


@BOTH
@pytest.mark.parametrize("kv", ["f16", "int8"])
def test_attention_of_narrow_windows_has_the_bits_of_the_host_around_ends_of_splits(config, kv, card, control):
    lengths = (64, 63, 127, 128, 65, 129, 1, 193)
    for n_rows in range(1, 9):
        positions = [lengths[(row + n_rows) % 8] - 1 for row in range(n_rows)]
        checks_attention.check_attention(card, control, config, kv, single_rows(n_rows, positions), 200, n_rows)


@BOTH
@pytest.mark.parametrize("kv", ["f16", "int8", "f32"])
@pytest.mark.parametrize("segments", [
    ((0, 60, 9),), ((0, 0, 16),), ((0, 126, 33),), ((0, 0, 257),), ((1, 62, 3), (0, 0, 70), (2, 127, 2)),
], ids=["9", "16", "33", "257", "three slots"])
def test_attention_of_chunks_has_the_bits_of_the_host(config, kv, segments, card, control):
    checks_attention.check_attention(card, control, config, kv, window_of(*segments), 260, len(segments))


def test_attention_of_a_chunk_that_grows_out_of_its_selection_has_the_bits_of_the_host(card, control):
    for kv in ("f16", "int8"):
        width = SMALL.selection_width
        checks_attention.check_attention(card, control, SMALL, kv, window_of((0, width - 21, 45)), width + 40, 6)


@BOTH
def test_the_merge_has_the_bits_of_the_host_at_every_number_of_splits(config, card, control):
    checks_attention.check_merge(card, control, config, [1, 64, 65, 32 * 64, 32 * 64 + 1, 33 * 64, 64 * 64, 7], 64 * 64, 1)
    checks_attention.check_merge(card, control, config, [64 * 64 + 1, 64, 130 * 64, 128 * 64], 131 * 64, 2)
    for n_splits in range(1, 36):
        checks_attention.check_merge(card, control, config, [64 * n_splits], 64 * n_splits, 3 + n_splits)


def test_attention_over_more_splits_than_a_merge_reads_ahead_has_the_bits_of_the_host(card, control):
    checks_attention.check_attention(card, control, SMALL, "f16", single_rows(2, (64 * 66, 64 * 64 - 1)), 64 * 67, 7)


@BOTH
def test_routing_and_grouping_are_those_of_the_host_at_every_row_count(config, card):
    checks_small.check_routing(card, config, ROW_COUNTS)


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_table_rows_have_the_bits_of_the_host(form, card):
    checks_small.check_lookup(card, form, 2560, 4)
    checks_small.check_lookup(card, form, 160 if form.block_weights == 32 else 256, 1)


def test_table_rows_of_plain_floats_have_the_bits_of_the_host(card):
    for name in ("F32", "F16", "BF16"):
        checks_small.check_float_lookup(card, name, 2560)


@BOTH
def test_the_ngram_layer_has_the_bits_of_the_host(config, card):
    for number, segments in enumerate((((3, 0, 1),), ((5, 4, 2), (0, 0, 1)), ((1, 3, 40), (4, 6, 3), (0, 0, 11)))):
        checks_small.check_ngrams(card, config, window_of(*segments), 10 * number)


@BOTH
def test_draft_picks_are_those_of_the_host(config, card):
    for n in (1, 255, 2048, 5001):
        checks_small.check_drafts(card, config, 3, n)


@pytest.mark.parametrize(
    "check",
    [
        lambda card, control: checks_streams.check_write_and_norm(card, control, SMALL, (2,)),
        lambda card, control: checks_streams.check_read(card, control, SMALL, "BF16", (2,)),
        lambda card, control: checks_gdn.check_window(card, control, SMALL, window_of((0, 3, 2)), 1),
        lambda card, control: checks_gdn.check_window_scan(card, control, SMALL, window_of((0, 3, 2)), 1),
        lambda card, control: checks_attention.check_attention(card, control, SMALL, "f16", single_rows(1, (70,)), 80, 1),
        lambda card, control: checks_small.check_routing(card, SMALL, (2,)),
    ],
    ids=["write", "read", "window", "decode window", "attention", "routing"],
)
def test_a_single_changed_bit_is_noticed(check, card, control, monkeypatch):
    honest = GuardedOutput.read

    def changed(self, shape):
        values = honest(self, shape)
        values.reshape(-1).view(np.int32)[-1] ^= 1
        return values

    monkeypatch.setattr(GuardedOutput, "read", changed)
    with pytest.raises(AssertionError):
        check(card, control)


@pytest.mark.parametrize("n_rows", [1, 9])
def test_a_graph_of_dependent_launches_replays_the_same_bits(n_rows, card, control):
    from strata.cuda.card.graphs import Graph
    from strata.cuda.packed.products import floats
    from strata.cuda.residual.read_mix import launch_read_mix
    from strata.cuda.residual.streams import launch_write_normalise
    from tests.gpu.geometry import CodedOutput, flat, normal, run
    from tests.gpu.support import assert_same_bits, random_float_weights, random_rows

    c, width, turns = REAL, REAL.residual_width, 4
    residual, y, inject, norm = random_rows(1, n_rows, width), random_rows(2, n_rows, c.hidden), normal(3, n_rows, 4), normal(4, width)
    down, up = (flat(card, random_float_weights("BF16", s, a, b).reshape(-1).view(np.uint8)) for s, a, b in ((5, c.low_rank, width), (6, width, c.low_rank)))
    place, normed, low = flat(card, residual), card.zeros("normed", n_rows * width, np.float32), card.zeros("low", n_rows * c.low_rank, np.float32)
    mixed, coded, placed_inject, placed_norm = flat(card, y), CodedOutput(card, n_rows, c.hidden), flat(card, inject), flat(card, norm)

    def launches(programmatic):
        return turns * (
            launch_write_normalise(card, c, place, n_rows, y=mixed, inject=placed_inject, norm=placed_norm, normed=normed, programmatic=programmatic),
            floats(card, "BF16", down, width, c.low_rank, normed, n_rows, low, programmatic=programmatic),
            launch_read_mix(card, c, "BF16", low, up, c.low_rank, normed, n_rows, mixed, coded.coded, programmatic=programmatic),
        )

    def start():
        place.copy_to_device(residual.reshape(-1))
        mixed.copy_to_device(y.reshape(-1))

    start()
    for launch in launches(programmatic=False):
        run(card, launch)
    wanted = mixed.copy_to_host(), place.copy_to_host()
    graph = Graph(card, launches(programmatic=True))
    for _ in range(10):
        start()
        graph.replay()
        card.synchronise()
        assert_same_bits("mixed", mixed.copy_to_host(), wanted[0])
        assert_same_bits("residual", place.copy_to_host(), wanted[1])
    graph.close()
