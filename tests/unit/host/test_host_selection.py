"""Which cells a query attends to (rule `fill`): ties, exact zeros, every tail, NaN."""

import numpy as np
import pytest

from strata.cpu_pool.team import Team
from strata.host import indexer
from tests.oracle import operations as oracle
from tests.unit.numerics.stranger.attention import selected

CONTROL = Team(1).control


def choose(scores, position: int, width: int, block: int) -> list[int]:
    """The engine's cells of one row; a guard behind them must stay as it is."""
    scores = np.atleast_2d(np.asarray(scores, np.float32))
    cells, counts = np.full((1, width + 3), -7, np.int32), np.empty(1, np.int32)
    indexer.choose_cells(CONTROL, scores, np.array([position], np.int32), block, width, cells, counts)
    assert (cells[0, counts[0] :] == -7).all()
    return cells[0, : counts[0]].tolist()


def by_sorting_cells(scores, position: int, width: int, block: int) -> list[int]:
    """Each cell with its block's score, tail cells first, cells ascending among equals: the rule as it is stated."""
    n_blocks = (position + 1) // block
    rank = [(-scores[cell // block] if cell < n_blocks * block else -np.inf, cell) for cell in range(position + 1)]
    return sorted(cell for _, cell in sorted(rank)[:width])


@pytest.mark.parametrize("block", [1, 2, 4, 8])
def test_every_tail_size_and_every_part_of_the_last_block(block):
    generator = np.random.default_rng(block)
    for width in range(block, 4 * block + 3):
        for position in range(width - 1, width + 6 * block):
            scores = generator.integers(0, 3, (position + 1) // block + 1).astype(np.float32)
            expected = by_sorting_cells(scores, position, width, block)
            assert choose(scores, position, width, block) == expected
            assert selected(scores, position, width, block) == expected
            assert oracle.select_cells(scores, position, width, block).tolist() == expected


@pytest.mark.parametrize("tail", range(4))
def test_the_models_geometry_takes_64_blocks_and_a_part(tail):
    generator, position = np.random.default_rng(tail), 4 * 150 + tail - 1
    scores = generator.standard_normal(151).astype(np.float32)
    cells = choose(scores, position, 259, 4)
    assert len(cells) == 259 and cells == by_sorting_cells(scores, position, 259, 4)
    blocks = np.bincount(np.array(cells) // 4, minlength=151)
    assert sorted(blocks[blocks > 0])[-64:] == [4] * 64
    assert blocks[:150].sum() == 259 - tail and (3 - tail == 0 or (blocks[:150] == 3 - tail).any())


def test_all_cells_are_taken_while_they_fit():
    for position in range(20):
        assert choose(np.zeros(6), position, 20, 4) == list(range(position + 1))
    assert len(choose(np.zeros(6), 20, 20, 4)) == 20


def test_scores_that_are_all_zero_keep_the_oldest_blocks():
    assert choose(np.zeros(10), 39, 11, 4) == list(range(11))
    assert choose(np.zeros(10), 41, 11, 4) == [*range(9), 40, 41]


def test_minus_zero_ties_with_plus_zero():
    assert choose([0.0, -0.0, 0.0, 0.0], 15, 8, 4) == list(range(8))
    assert choose([-0.0, 0.0, 0.0, 0.0], 15, 8, 4) == list(range(8))


def test_ties_at_the_border_take_the_lower_block():
    assert choose([1, 5, 1, 1, 5], 19, 10, 4) == [0, 1, 4, 5, 6, 7, 16, 17, 18, 19]


def test_without_a_tail_the_querys_own_block_competes():
    assert choose([3, 2, 1], 11, 8, 4) == list(range(8))
    assert choose([3, 2, 1], 12, 8, 4) == [0, 1, 2, 3, 4, 5, 6, 12]


def test_scores_behind_the_complete_blocks_do_not_matter():
    assert choose([3, 2, 1, 99], 13, 8, 4) == choose([3, 2, 1, -99], 13, 8, 4) == choose([3, 2, 1, np.nan], 13, 8, 4)


def test_nan_ranks_lowest_and_infinities_where_they_belong():
    assert choose([np.nan, 0, 0, np.inf], 15, 8, 4) == [4, 5, 6, 7, 12, 13, 14, 15]
    assert choose([np.nan, -np.inf, np.nan, 1], 15, 8, 4) == [4, 5, 6, 7, 12, 13, 14, 15]


def test_neighbouring_floats_are_told_apart():
    lower = np.float32(1)
    higher = np.nextafter(lower, np.float32(2))
    assert choose([lower, lower, higher], 11, 4, 4) == [8, 9, 10, 11]
    assert choose([-lower, -higher, -higher], 11, 4, 4) == [0, 1, 2, 3]


def test_rows_of_a_window_choose_by_their_own_position():
    """Positions of one session: an earlier row must not see what a later one wrote."""
    scores = np.random.default_rng(1).standard_normal((40, 12)).astype(np.float32)
    cells, counts = np.full((40, 11), -7, np.int32), np.empty(40, np.int32)
    indexer.choose_cells(CONTROL, scores, np.arange(40, dtype=np.int32), 4, 11, cells, counts)
    for position in range(40):
        assert cells[position, : counts[position]].tolist() == by_sorting_cells(scores[position], position, 11, 4)


def test_a_pooled_key_is_made_only_where_a_row_completes_a_block():
    raw = np.random.default_rng(2).standard_normal((2, 16, 1, 8)).astype(np.float32)
    pooled, table = np.full((2, 5, 8), -7, np.float32), np.zeros((16, 2, 2), np.float32)
    table[:, 0] = 1
    slots, positions = np.array([0, 0, 1, 1], np.int32), np.array([3, 4, 10, 11], np.int32)
    indexer.pool_blocks("f32")(
        raw, np.zeros((2, 16, 1, 0), np.uint16), 4, np.ones(8, np.float32), np.float32(1e-6), table, slots, positions, pooled
    )
    written = [(slot, block) for slot in range(2) for block in range(5) if (pooled[slot, block] != -7).all()]
    assert written == [(0, 0), (1, 2)] and (np.delete(pooled.reshape(10, 8), [0, 7], axis=0) == -7).all()


def whole_blocks(scores, position: int, width: int, block: int) -> list[int]:
    scores = np.atleast_2d(np.asarray(scores, np.float32))
    cells, counts = np.full((1, width + 3), -7, np.int32), np.empty(1, np.int32)
    indexer.choose_whole_blocks(CONTROL, scores, np.array([position], np.int32), block, width, cells, counts)
    assert (cells[0, counts[0] :] == -7).all()
    return cells[0, : counts[0]].tolist()


@pytest.mark.parametrize("block", [1, 2, 4, 8])
def test_whole_blocks_are_the_filled_selection_without_the_blocks_taken_in_part(block):
    generator, n_shorter = np.random.default_rng(block), 0
    for width in range(2 * block - 1, 4 * block + 3):
        for position in range(width, width + 6 * block):
            scores = generator.integers(0, 3, (position + 1) // block + 1).astype(np.float32)
            filled, whole = choose(scores, position, width, block), whole_blocks(scores, position, width, block)
            n_tail = (position + 1) % block
            complete = filled[: len(filled) - n_tail]
            expected = [cell for cell in complete if sum(other // block == cell // block for other in complete) == block] + filled[len(filled) - n_tail :]
            assert whole == expected
            n_shorter += len(whole) < len(filled)
    assert (n_shorter > 0) is (block > 1)


def test_whole_blocks_take_all_cells_while_they_fit():
    assert whole_blocks(np.zeros(6), 10, 11, 4) == list(range(11))
