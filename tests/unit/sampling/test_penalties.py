"""Penalties: what they do to a logit, how far they look back."""

import numpy as np
import pytest

from strata.errors import RequestError
from strata.sampling.penalties import penalised
from strata.sampling.settings import Sampling

LOGITS = np.array([2.0, -2.0, 0.0, 1.0, -1.0], np.float32)


def test_repeat_divides_positive_and_multiplies_other_logits():
    values = penalised(LOGITS, [0, 1, 2], Sampling(penalty_repeat=1.25))
    assert values.tolist() == [2.0 / 1.25, -2.0 * 1.25, 0.0, 1.0, -1.0]


def test_frequency_counts_and_presence_does_not():
    values = penalised(LOGITS, [3, 3, 3, 4], Sampling(penalty_freq=0.5, penalty_present=0.25))
    assert values.tolist() == [2.0, -2.0, 0.0, 1.0 - (3 * 0.5 + 0.25), -1.0 - (0.5 + 0.25)]


def test_repeat_comes_before_frequency_and_presence():
    values = penalised(LOGITS, [0], Sampling(penalty_repeat=2.0, penalty_present=3.0))
    assert values[0] == 2.0 / 2.0 - 3.0


def test_only_the_last_n_tokens_count():
    history = [0, 1, 1, 3]
    assert penalised(LOGITS, history, Sampling(penalty_freq=1.0, penalty_last_n=2)).tolist() == [2.0, -3.0, 0.0, 0.0, -1.0]
    assert penalised(LOGITS, history, Sampling(penalty_freq=1.0, penalty_last_n=3)).tolist() == [2.0, -4.0, 0.0, 0.0, -1.0]


def test_the_logits_are_left_alone():
    before = LOGITS.copy()
    penalised(LOGITS, [0], Sampling(penalty_freq=1.0))
    assert np.array_equal(before, LOGITS)


def test_a_penalty_beyond_all_numbers_is_an_error_that_says_so():
    with pytest.raises(RequestError, match="not finite"):
        penalised(np.array([3e38], np.float32), [0], Sampling(penalty_repeat=1e-300))


@pytest.mark.parametrize(
    ("keys", "has"),
    [({}, False), ({"penalty_repeat": 1.1}, True), ({"penalty_freq": 0.1}, True), ({"penalty_present": 0.1}, True),
     ({"penalty_repeat": 1.1, "penalty_last_n": 0}, False)],
)
def test_neutral_penalties_are_none(keys, has):
    assert Sampling(**keys).has_penalties is has
