"""Whole blocks of the fixture's first layers: any number of rows, neighbours that are NaN or huge, any number of threads."""

import numpy as np
import pytest

from strata.rows import Segment, Window
from tests.unit.host.engine_steps import engine_model, new_executor, run_points
from tests.unit.host.operation import MOST_ROWS, POISONS, ROW_COUNTS
from tests.unit.numerics.bounds import equal_bits

LAYERS = 4
"""Three delta nets (the n-gram table before the second) and a sparse attention."""
GDN_LAYER, NGRAM_LAYER, QSA_LAYER = 0, 1, 3
ROUNDS_UNTIL_WORKERS_HELPED = 50
BLOCKS = ("gdn", "qsa", "moe", "read", "write", "ngram")


def stage(n_slots: int = MOST_ROWS, n_threads: int = 1):
    return new_executor("canonical", "f16", n_slots, n_threads, context=16, last=LAYERS)


@pytest.fixture(scope="module")
def executor():
    made = stage()
    yield made
    made.device.close()


def tokens_of(n: int) -> list[int]:
    return np.random.default_rng(1).integers(0, 4093, MOST_ROWS)[:n].tolist()


def batch(tokens, slots) -> Window:
    """One row per session, each at its first position."""
    return Window.of([Segment(slot, 0, (token,)) for token, slot in zip(tokens, slots, strict=True)], keep=False)


def points(executor, tokens, slots=None) -> list:
    window = batch(tokens, range(len(tokens)) if slots is None else slots)
    found = run_points(executor, window)
    executor.abandon(window)
    return found


@pytest.fixture(scope="module")
def widest(executor):
    return points(executor, tokens_of(MOST_ROWS))


@pytest.mark.parametrize("n", ROW_COUNTS)
def test_no_row_count_changes_a_row(n, executor, widest):
    tokens = tokens_of(n)
    found = points(executor, tokens)
    for row in {0, n - 1}:
        for (name, layer, values), (_, _, alone) in zip(found, points(executor, tokens[row : row + 1], [row]), strict=True):
            assert equal_bits(values[row : row + 1], alone), (name, layer, row)
    for (name, layer, values), (_, _, most) in zip(found, widest, strict=True):
        assert equal_bits(values, most[:n]), (name, layer)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_no_thread_count_changes_a_bit(n_threads, widest):
    executor = stage(n_threads=n_threads)
    for _ in range(ROUNDS_UNTIL_WORKERS_HELPED):
        for (name, layer, values), (_, _, expected) in zip(points(executor, tokens_of(MOST_ROWS)), widest, strict=True):
            assert equal_bits(values, expected), (name, layer)
        if all(executor.device.team.n_pieces_by_workers):
            break
    assert all(executor.device.team.n_pieces_by_workers)
    executor.device.close()


def test_the_slot_that_a_session_has_changes_no_bit(executor, widest):
    found = points(executor, tokens_of(9), [200, 3, 17, 0, 256, 1, 99, 100, 255])
    assert all(equal_bits(a[2], b[2][:9]) for a, b in zip(found, widest, strict=True))


def test_other_tokens_give_other_rows(widest):
    """The comparisons above would mean nothing if rows were alike."""
    assert len({values[row].tobytes() for values in (widest[-1][2],) for row in range(MOST_ROWS)}) > 200


def call(executor, block: str, window: Window, values: np.ndarray) -> np.ndarray:
    """One block on rows of mixed values [rows, H], or of the residual [rows, C, H]."""
    executor.begin(window)
    layers = executor.placed.layers
    try:
        if block == "gdn":
            return executor.gdn(GDN_LAYER, values)
        if block == "qsa":
            return executor.qsa(QSA_LAYER, values)
        if block == "moe":
            return executor.moe(GDN_LAYER, values)
        if block == "read":
            return np.concatenate(executor.read_streams(0, "moe", layers[0].moe_mixer, values), axis=1)
        if block == "write":
            y, inject = values[:, 0].copy(), values[:, :, 0].copy()
            executor.write_streams(0, "moe", values, y, inject)
        if block == "ngram":
            executor.ngram(NGRAM_LAYER, values)
        return values
    finally:
        executor.abandon(window)


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("block", BLOCKS)
def test_no_neighbour_changes_a_row_of_a_block(block, poison, executor):
    config = engine_model().config
    shape = (9, config.hidden) if block in ("gdn", "qsa", "moe") else (9, config.n_streams, config.hidden)
    values, kept = np.random.default_rng(2).standard_normal(shape).astype(np.float32), 4
    tokens = tokens_of(9)
    expected = call(executor, block, batch(tokens[kept : kept + 1], [kept]), values[kept : kept + 1].copy())
    spoiled = values.copy()
    spoiled[np.arange(9) != kept] = POISONS[poison]["f"]
    found = call(executor, block, batch(tokens, range(9)), spoiled)
    assert equal_bits(found[kept : kept + 1], expected)
    assert np.isfinite(expected).all()


@pytest.mark.parametrize("block", BLOCKS)
def test_a_nan_in_a_row_reaches_that_rows_results(block, executor):
    """A poison that nobody reads would prove nothing."""
    config = engine_model().config
    shape = (2, config.hidden) if block in ("gdn", "qsa", "moe") else (2, config.n_streams, config.hidden)
    values = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    values[0, 0] = np.nan
    found = call(executor, block, batch(tokens_of(2), [0, 1]), values)
    assert np.isnan(found[0]).any() and np.isfinite(found[1]).all()
