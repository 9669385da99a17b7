"""A slot's state: a new session in a used slot, a session moved to another slot, cells that were never kept."""

from dataclasses import fields

import numpy as np
import pytest

from strata.host.state import NgramState, QsaState, poison
from tests.unit.host.engine_steps import new_executor, one_slot, prompt, run_points
from tests.unit.numerics.bounds import equal_bits

TOKENS = prompt(20)


@pytest.fixture
def executor():
    made = new_executor("canonical", "f16", n_slots=3)
    yield made
    made.device.close()


def logits(executor, tokens, start: int = 0, slot: int = 1) -> np.ndarray:
    return run_points(executor, one_slot(tokens, start, slot))[-1][2]


@pytest.fixture(scope="module")
def expected():
    made = new_executor("canonical", "f16", n_slots=3)
    yield logits(made, TOKENS)
    made.device.close()


def test_a_cleared_slot_starts_a_new_session(executor, expected):
    logits(executor, prompt(40)[20:])
    executor.clear(1)
    assert equal_bits(logits(executor, TOKENS), expected)


def test_without_clearing_the_old_session_would_be_heard(executor, expected):
    logits(executor, prompt(40)[20:])
    assert not equal_bits(logits(executor, TOKENS), expected)


def test_a_copied_slot_continues_the_session_and_the_old_one_stays(executor, expected):
    first = logits(executor, TOKENS[:9])
    executor.copy_slot(1, 2)
    for slot in (2, 1):
        assert equal_bits(np.concatenate((first, logits(executor, TOKENS[9:], 9, slot))), expected)


@pytest.mark.parametrize("reached", [7, 8, 9, 11])
def test_cells_past_the_session_are_never_read(executor, expected, reached):
    """A rejected row's cells and pooled keys are filled with NaN; the session goes on over them."""
    first = logits(executor, TOKENS[:reached])
    tried = one_slot([5, 6, 7, 8], reached, keep=False)
    run_points(executor, tried)
    executor.commit(tried, np.array([0], np.int32))
    for state in executor.state.values():
        if isinstance(state, QsaState):
            poison(state, 1, reached, executor.config.indexer_block)
    assert equal_bits(np.concatenate((first, logits(executor, TOKENS[reached:], reached))), expected)


def test_the_poison_would_be_noticed_if_it_were_read(executor, expected):
    first = logits(executor, TOKENS[:9])
    for state in executor.state.values():
        if isinstance(state, QsaState):
            poison(state, 1, 8, executor.config.indexer_block)
    rest = logits(executor, TOKENS[9:], 9)
    assert equal_bits(first, expected[:9]) and np.isnan(rest).all(axis=1).any()


def test_a_new_session_has_no_tokens_before_it(executor):
    logits(executor, TOKENS)
    executor.clear(1)
    for state in executor.ngrams.values():
        assert isinstance(state, NgramState) and state.tokens[1].tolist() == [-1, -1] and not state.tail[1].any()


def test_sessions_are_taken_from_the_budget_and_given_back(executor):
    held = sum(getattr(state, f.name).nbytes for state in (*executor.state.values(), *executor.ngrams.values()) for f in fields(state))
    assert executor.device.taken_bytes == held > 0
    executor.close()
    assert executor.device.taken_bytes == 0
