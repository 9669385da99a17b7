"""Routing ties, the grouping of entries, and that neither the order nor the place of experts' work changes a bit."""

import numpy as np
import pytest

from strata.cpu_pool.team import Team
from strata.formats.table import by_name
from strata.host import experts
from strata.host.matrix import Activations, Entries, all_rows
from strata.host.products import coded_product, wide_product
from tests.unit.host.cases_products import encode_rows, matrix_rows
from tests.unit.host.cases_streams import normal
from tests.unit.host.operation import ROW_COUNTS
from tests.unit.numerics.bounds import equal_bits
from tests.unit.numerics.stranger import products as plain
from tests.unit.numerics.stranger.sums import codes

CONTROL = Team(1).control
E, K, N_OUT, N_IN = 6, 3, 8, 256
FORM = by_name("Q4_K")
BANK = np.stack([matrix_rows(FORM, E * N_OUT, N_IN).reshape(E, N_OUT, -1)])[0]
BANK.flags.writeable = False


def route(logits, n_used: int) -> tuple[np.ndarray, np.ndarray]:
    logits = np.atleast_2d(np.asarray(logits, np.float32))
    ids, weights = np.empty((len(logits), n_used), np.int32), np.empty((len(logits), n_used), np.float32)
    experts.route(logits, ids, weights)
    return ids, weights


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        ([0, 2, 1, 2, 1], [1, 3, 2]),
        ([1, 1, 1, 1], [0, 1, 2]),
        ([0.0, -0.0, 0.0], [0, 1, 2]),
        ([-0.0, 0.0, 1.0], [2, 0, 1]),
        ([-np.inf, 3, -np.inf, -np.inf], [1, 0, 2]),
        ([np.nan, -5, np.nan, -6], [1, 3, 0]),
        ([5, 6, 7], [2, 1, 0]),
    ],
)
def test_equal_logits_prefer_the_lower_expert(logits, expected):
    assert route(logits, 3)[0].tolist() == [expected]


def test_weights_fall_with_rank_and_add_up_to_one():
    _, weights = route(normal(np.random.default_rng(1), 50, 64), 6)
    assert (np.diff(weights, axis=1) <= 0).all() and np.abs(weights.astype(np.float64).sum(axis=1) - 1).max() < 1e-6


def test_equal_logits_have_equal_weights():
    assert route([4, 4, 4, 4, 0], 4)[1].tolist() == [[0.25] * 4]


def test_one_expert_has_all_the_weight():
    assert route([-3.5, -90.25], 1)[1].tolist() == [[1.0]]


def grouped(ids) -> tuple[Entries, np.ndarray]:
    ids = np.asarray(ids, np.int32)
    distinct, starts = np.full(ids.size, -7, np.int32), np.full(ids.size + 1, -7, np.int32)
    rows, entry_of = np.full(ids.size, -7, np.int32), np.full(ids.shape, -7, np.int32)
    n = experts.group_entries(ids, distinct, starts, rows, entry_of, np.empty(E, np.int32))
    return Entries(distinct[:n], starts[: n + 1], rows), entry_of


def test_experts_stand_in_the_order_of_their_first_appearance():
    entries, entry_of = grouped([[4, 1], [1, 0], [4, 0]])
    assert entries.experts.tolist() == [4, 1, 0] and entries.starts.tolist() == [0, 2, 4, 6]
    assert entries.rows.tolist() == [0, 2, 0, 1, 1, 2] and entry_of.tolist() == [[0, 2], [3, 4], [1, 5]]


@pytest.mark.parametrize("n_rows", [1, 2, 9, 65, 257])
def test_every_entry_stands_where_its_expert_and_row_are(n_rows):
    generator = np.random.default_rng(n_rows)
    ids = np.stack([generator.permutation(E)[:K] for _ in range(n_rows)])
    entries, entry_of = grouped(ids)
    expert_of = np.repeat(entries.experts, np.diff(entries.starts))
    assert np.array_equal(expert_of[entry_of], ids)
    assert np.array_equal(entries.rows[entry_of], np.repeat(np.arange(n_rows), K).reshape(n_rows, K))
    assert sorted(entry_of.ravel()) == list(range(n_rows * K))


def bank_product(entries: Entries, coded) -> np.ndarray:
    out = np.empty((len(entries.rows), N_OUT), np.float32)
    bank = BANK.reshape(-1)
    coded_product(FORM.type_id)(
        CONTROL, bank, BANK[0].size, BANK.shape[2], N_IN // 32, entries.experts, entries.starts, entries.rows, *coded, out
    )
    return out


@pytest.mark.parametrize("n_rows", ROW_COUNTS)
def test_an_experts_product_does_not_depend_on_the_rows_that_share_the_expert(n_rows):
    x = normal(np.random.default_rng(2), n_rows, N_IN)
    generator = np.random.default_rng(n_rows)
    ids = np.stack([generator.permutation(E)[:K] for _ in range(n_rows)])
    entries, entry_of = grouped(ids)
    outputs = bank_product(entries, encode_rows(CONTROL, x))[entry_of]
    for row in {0, n_rows - 1}:
        for rank in range(K):
            alone = plain.coded("Q4_K", BANK[ids[row, rank]], codes(x[row : row + 1]))
            assert equal_bits(outputs[row, rank], alone[0])


def test_the_order_in_which_experts_are_listed_changes_no_bit():
    x = normal(np.random.default_rng(3), 8, N_IN)
    coded = encode_rows(CONTROL, x)
    entries, _ = grouped(np.stack([np.random.default_rng(row).permutation(E)[:K] for row in range(8)]))
    expected = bank_product(entries, coded)
    for expert_at in range(len(entries.experts)):
        span = slice(entries.starts[expert_at], entries.starts[expert_at + 1])
        lone = Entries(entries.experts[expert_at : expert_at + 1], np.array([0, span.stop - span.start], np.int32), entries.rows[span])
        assert equal_bits(bank_product(lone, coded), expected[span])


def test_in_mode_wide_an_experts_product_is_the_strangers():
    x, entries = normal(np.random.default_rng(4), 3, N_IN), Entries(np.array([5, 2], np.int32), np.array([0, 1, 3], np.int32), np.array([2, 0, 1], np.int32))
    out = np.empty((3, N_OUT), np.float32)
    wide_product(FORM.type_id)(
        CONTROL, BANK.reshape(-1), BANK[0].size, BANK.shape[2], N_IN // 32, entries.experts, entries.starts, entries.rows, x, out
    )
    assert equal_bits(out[0], plain.wide("Q4_K", BANK[5], x[2:3])[0]) and equal_bits(out[1:], plain.wide("Q4_K", BANK[2], x[:2]))


def test_activations_are_coded_once_and_by_their_spans():
    x = normal(np.random.default_rng(5), 3, N_IN)
    activations = Activations(x, CONTROL, np.array([32, 256, 32], np.int32))
    assert activations.coded is activations.coded
    for row, span in enumerate((32, 256, 32)):
        assert all(equal_bits(a[row : row + 1], b) for a, b in zip(activations.coded, codes(x[row : row + 1], span), strict=True))


def test_a_dense_matrix_is_one_expert_with_all_rows():
    entries = all_rows(4)
    assert (entries.experts.tolist(), entries.starts.tolist(), entries.rows.tolist()) == ([0], [0, 4], [0, 1, 2, 3])
