"""The oracle's operations against numbers worked out by hand: cases that the reference figures do not reach."""

import math

import numpy as np
import pytest

from tests.oracle import operations as ops
from tests.oracle.compare import SAME_STEPS, relative_error
from tests.oracle.fixture_model import load_fixture
from tests.oracle.weights import decode_q2_0, teach_q2_0


def test_all_cells_are_selected_while_they_fit():
    assert ops.select_cells(np.zeros(2), position=6, width=7, block=4).tolist() == list(range(7))


def test_tail_cells_come_first_and_the_last_block_gives_its_first_cells():
    scores = np.array([5.0, 1.0, 9.0])
    assert ops.select_cells(scores, position=13, width=7, block=4).tolist() == [0, 8, 9, 10, 11, 12, 13]


def test_without_a_tail_the_query_own_block_competes():
    scores = np.array([5.0, 4.0, 1.0])
    assert ops.select_cells(scores, position=11, width=7, block=4).tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_equal_scores_prefer_lower_cells():
    assert ops.select_cells(np.array([0.0, 3.0, 0.0, 0.0]), 15, 7, 4).tolist() == [0, 1, 2, 4, 5, 6, 7]


def test_entries_after_the_complete_blocks_are_ignored():
    bare, extended = np.array([5.0, 1.0, 9.0]), np.array([5.0, 1.0, 9.0, 1e9, 7.0])
    assert np.array_equal(ops.select_cells(bare, 13, 7, 4), ops.select_cells(extended, 13, 7, 4))


def test_selection_agrees_with_sorting_single_cells():
    generator = np.random.default_rng(31)
    for position in range(7, 60):
        scores = generator.integers(0, 4, size=(position + 1) // 4).astype(float)
        per_cell = [scores[cell // 4] if cell // 4 < len(scores) else math.inf for cell in range(position + 1)]
        ranked = sorted(range(position + 1), key=lambda cell: (-per_cell[cell], cell))
        assert ops.select_cells(scores, position, 7, 4).tolist() == sorted(ranked[:7])


def test_router_ties_prefer_the_lower_index():
    ids, weights = ops.router(np.array([[0.0, 2.0, 1.0, 2.0, 1.0]]), 3)
    assert ids.tolist() == [[1, 3, 2]]
    expected = np.exp([2.0, 2.0, 1.0]) / np.exp([2.0, 2.0, 1.0]).sum()
    assert relative_error(weights[0], expected) < SAME_STEPS


def test_router_weights_are_bounded_by_the_floor():
    _, weights = ops.router(np.zeros((1, 2**15)), 1)
    assert weights[0, 0] == 0.5


@pytest.mark.parametrize(
    ("previous", "expected"),
    [
        ((), [7, 99, 99]),
        ((5,), [7, 5, 99]),
        ((4, 5), [7, 5, 4]),
        ((99, 5), [7, 5, 99]),
        ((4, 99), [7, 99, 99]),
        ((3, 4, 5), [7, 5, 4]),
    ],
)
def test_an_end_token_or_the_start_cuts_the_context(previous, expected):
    assert ops.context_tokens(7, previous, ngram=3, end_token=99) == expected


def test_the_current_end_token_cuts_nothing():
    assert ops.context_tokens(99, (4, 5), ngram=3, end_token=99) == [99, 5, 4]


def test_hash_rows_wrap_at_64_bits_and_are_unsigned():
    multipliers, sizes, offsets = (2**62 + 3, 2**59 + 5, 2**63 + 1), (1009, 1013), (0, 1009)
    rows = ops.ple_hash_rows([7, 3], [4, 5], multipliers, sizes, offsets, heads_per_ngram=1, end_token=99)
    for row, (c0, c1, c2) in zip(rows, [(7, 5, 4), (3, 7, 5)], strict=True):
        bigram = ((c0 * multipliers[0]) % 2**64) ^ ((c1 * multipliers[1]) % 2**64)
        trigram = bigram ^ ((c2 * multipliers[2]) % 2**64)
        assert row.tolist() == [bigram % 1009, trigram % 1013 + 1009]
        assert bigram > 2**63


def test_rope_turns_a_pair_by_position_and_leaves_the_rest():
    turned = ops.rope(np.array([[[1.0, 5.0, 2.0, 6.0, 7.0]]]), [3], base=100.0, dims=4)[0, 0]
    slow = 3 * 100.0**-0.5
    expected = [
        math.cos(3) - 2 * math.sin(3),
        5 * math.cos(slow) - 6 * math.sin(slow),
        2 * math.cos(3) + math.sin(3),
        6 * math.cos(slow) + 5 * math.sin(slow),
        7.0,
    ]
    assert relative_error(turned, expected) < SAME_STEPS


def test_the_delta_rule_follows_a_step_done_by_hand():
    state = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    query, key, value = np.array([[[1.0, 0.0]]]), np.array([[[0.6, 0.8]]]), np.array([[[10.0, 20.0]]])
    outputs, after = ops.gdn_scan(query, key, value, np.array([[0.5]]), np.array([[0.25]]), state)
    delta = [0.25 * (10 - 0.5 * (0.6 * 1 + 0.8 * 3)), 0.25 * (20 - 0.5 * (0.6 * 2 + 0.8 * 4))]
    expected = [[0.5 + 0.6 * delta[0], 1.0 + 0.6 * delta[1]], [1.5 + 0.8 * delta[0], 2.0 + 0.8 * delta[1]]]
    assert relative_error(after[0], expected) < SAME_STEPS
    assert relative_error(outputs[0, 0], np.array(expected[0]) / math.sqrt(2)) < SAME_STEPS
    assert state.tolist() == [[[1.0, 2.0], [3.0, 4.0]]]


def test_convolutions_over_one_window_equal_single_rows():
    generator = np.random.default_rng(32)
    inputs, taps = generator.normal(size=(11, 5)), generator.normal(size=(5, 4))
    cases = (
        (lambda rows, history: ops.gdn_conv(rows, history, taps), np.zeros((3, 5))),
        (lambda rows, history: ops.ple_conv(rows, history, taps, 3), np.zeros((9, 5))),
    )
    for convolve, history in cases:
        whole, end = convolve(inputs, history)
        for row in range(len(inputs)):
            single, history = convolve(inputs[row : row + 1], history)
            assert np.array_equal(single[0], whole[row])
        assert np.array_equal(history, end)


def test_activations_keep_their_limits():
    assert ops.sigmoid([-1000.0, 0.0, 1000.0]).tolist() == [0.0, 0.5, 1.0]
    assert ops.silu([-1000.0, 0.0, 1000.0]).tolist() == [0.0, 0.0, 1000.0]
    assert ops.softplus([-1000.0, 20.5, 1000.0]).tolist() == [0.0, 20.5, 1000.0]
    assert ops.softplus(0.0) == math.log(2)


def test_the_draft_is_the_largest_of_its_subset_and_ties_go_low():
    token, probability = ops.draft_pick(np.array([9.0, 1.0, 3.0, 3.0, 8.0]), (1, 2, 3))
    assert token == 2
    assert probability == pytest.approx(math.e**3 / (2 * math.e**3 + math.e), rel=SAME_STEPS)


def test_greedy_ties_go_to_the_lower_id():
    assert ops.greedy_pick(np.array([[1.0, 4.0, 4.0]])).tolist() == [1]


def test_q2_0_decodes_codes_low_bits_first_with_a_signed_scale():
    scale = np.array([-0.5], dtype="<f2").view(np.uint8)
    block = np.concatenate((scale, np.array([0b11100100], dtype=np.uint8), np.full(15, 0b01010101, dtype=np.uint8)))
    assert decode_q2_0(block)[:4].tolist() == [0.5, 0.0, -0.5, -1.0]
    assert not decode_q2_0(block)[4:].any()


def test_teaching_the_library_twice_changes_nothing():
    teach_q2_0()
    teach_q2_0()


def test_fixture_tensors_have_the_described_shapes_and_are_read_only():
    keys, tensors = load_fixture()
    shapes = {
        "token_embd.weight": (4096, 256),
        "per_layer_token_embd.weight": (160316, 32),
        "blk.0.ssm_conv1d.weight": (640, 4),
        "blk.4.ffn_down_exps.weight": (64, 256, 64),
        "blk.1.ple_key.weight": (1024, 256),
        "blk.12.nextn.fc_hidden.weight": (256, 256),
    }
    assert {name: tensors[name].shape for name in shapes} == shapes
    assert all(tensor.dtype == np.float32 and not tensor.flags.writeable for tensor in tensors.values())
    assert keys["block_count"] == 12
    assert len(keys["nextn.draft_token_ids"]) == 2048
