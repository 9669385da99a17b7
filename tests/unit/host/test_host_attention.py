"""Attention over selected cells: splits at every 64th rank, cells that are not selected, scores that are not finite."""

import numpy as np
import pytest

from strata.cpu_pool.team import Team
from strata.host import attention
from tests.oracle import operations as oracle
from tests.unit.host.cases_attention import GROUP, HEADS, KV_HEADS, SCORE_SCALE, D, by_head
from tests.unit.host.cases_streams import normal
from tests.unit.numerics.bounds import FLOAT32_STEPS, equal_bits, relative_error
from tests.unit.numerics.document import hex_of, sequence, vectors
from tests.unit.numerics.stranger.attention import attended

CONTROL = Team(1).control
CELLS = 300
_generator = np.random.default_rng(1)
QUERY, KEYS, VALUES = (normal(_generator, *shape) for shape in ((HEADS, D), (CELLS, KV_HEADS, D), (CELLS, KV_HEADS, D)))


def attend(query, keys, values, cells, scale=SCORE_SCALE) -> np.ndarray:
    """One row over float32 cells."""
    query, keys, values = map(np.ascontiguousarray, (query, keys, values))
    cells, out = np.asarray(cells, np.int32), np.empty_like(query[None])
    marks = np.zeros((1, *keys.shape[:2], 0), np.uint16)
    attention.attend("f32")(
        CONTROL, query[None], keys[None], marks, values[None], marks, np.zeros(1, np.int32), cells[None],
        np.array([len(cells)], np.int32), scale, out,
    )
    return out[0]


@pytest.mark.parametrize("n", [1, 2, 3, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193, 257])
def test_one_to_five_splits_have_the_strangers_bits(n):
    cells = np.sort(np.random.default_rng(n).choice(CELLS, n, replace=False))
    found = attend(QUERY * 4, KEYS, VALUES, cells)
    assert equal_bits(found, by_head(QUERY * 4, KEYS, VALUES, cells))
    assert relative_error(found, oracle.attend(QUERY * 4, KEYS, VALUES, cells)) < FLOAT32_STEPS


@pytest.mark.parametrize("n", [70, 128, 129, 193])
@pytest.mark.parametrize("split", [32, 63, 128, 1000])
def test_other_splits_have_other_bits(n, split):
    cells = np.arange(n)
    assert not equal_bits(attend(QUERY * 4, KEYS, VALUES, cells), by_head(QUERY * 4, KEYS, VALUES, cells, split=split))


def test_splits_are_cut_by_rank_not_by_position():
    cells = np.arange(0, 200, 2)
    found = attend(QUERY * 4, KEYS, VALUES, cells)
    assert equal_bits(found, attend(QUERY * 4, KEYS[::2], VALUES[::2], np.arange(100)))


def test_the_documents_vector():
    keys, values = (np.stack([sequence(first + s, 8) for s in range(130)]) for first in (10, 20))
    (expected,) = vectors("attention")
    assert list(map(hex_of, attended(sequence(4, 8), keys, values))) == expected
    scale = np.float32(1) / np.sqrt(np.float32(8))
    found = attend(sequence(4, 8)[None], keys[:, None], values[:, None], np.arange(130), scale)
    assert list(map(hex_of, found[0])) == expected


def test_cells_that_are_not_selected_are_never_visited():
    cells = np.delete(np.arange(CELLS), [0, 5, 70, 140, 299])
    keys, values = KEYS.copy(), VALUES.copy()
    keys[[0, 5, 70]], values[[5, 140, 299]] = np.nan, np.inf
    assert equal_bits(attend(QUERY, keys, values, cells), attend(QUERY, KEYS, VALUES, cells))


def test_a_selected_cell_that_is_nan_makes_the_heads_that_meet_it_nan():
    keys = KEYS.copy()
    keys[100, 1, 3] = np.nan
    found, expected = attend(QUERY, keys, VALUES, np.arange(CELLS)), attend(QUERY, KEYS, VALUES, np.arange(CELLS))
    assert equal_bits(found[:GROUP], expected[:GROUP]) and np.isnan(found[GROUP:]).all()


def test_heads_meet_the_key_head_of_their_group():
    values = VALUES.copy()
    values[:, 0], values[:, 1] = 1, 2
    assert attend(QUERY, KEYS, values, np.arange(50))[:, 0] == pytest.approx([1] * GROUP + [2] * GROUP)


def test_scores_that_differ_by_more_than_exp_can_tell_leave_one_cell():
    keys = KEYS.copy()
    keys[77] = 1000 * np.sign(QUERY[0])
    found = attend(QUERY[:1].repeat(HEADS, axis=0), keys, VALUES, np.arange(CELLS))
    assert equal_bits(found, np.repeat(VALUES[77], GROUP, axis=0))


def test_equal_keys_give_the_mean():
    found = attend(QUERY, np.ones_like(KEYS), VALUES, np.arange(CELLS))
    assert relative_error(found, np.repeat(VALUES.astype(np.float64).mean(axis=0), GROUP, axis=0)) < 10 * FLOAT32_STEPS


def test_rows_read_the_cells_of_their_own_slot():
    both = np.stack([KEYS, KEYS[::-1]]), np.stack([VALUES, VALUES[::-1]])
    queries, out = np.stack([QUERY] * 3), np.empty((3, HEADS, D), np.float32)
    marks = np.zeros((2, CELLS, KV_HEADS, 0), np.uint16)
    cells, slots = np.tile(np.arange(70, dtype=np.int32), (3, 1)), np.array([1, 0, 1], np.int32)
    attention.attend("f32")(
        CONTROL, queries, both[0], marks, both[1], marks, slots, cells, np.array([70, 70, 9], np.int32), SCORE_SCALE, out
    )
    assert equal_bits(out[0], attend(QUERY, KEYS[::-1], VALUES[::-1], np.arange(70)))
    assert equal_bits(out[1], attend(QUERY, KEYS, VALUES, np.arange(70)))
    assert equal_bits(out[2], attend(QUERY, KEYS[::-1], VALUES[::-1], np.arange(9)))
