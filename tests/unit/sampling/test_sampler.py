"""Choosing a token: a pure function of logits, history, position and keys."""

from collections import Counter

import numpy as np
import pytest

from strata.sampling.philox import uniform
from strata.sampling.sampler import choose
from strata.sampling.settings import Sampling

SEED = 3


def row(n: int = 4096, scale: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(SEED).normal(size=n) * scale).astype(np.float32)


def test_greedy_takes_the_largest_and_the_lower_id_of_equals():
    assert choose(np.array([1, 5, 5, 2], np.float32), [], 0, Sampling()).token == 1


def test_greedy_meets_penalties():
    logits = np.array([1, 5, 4.9, 2], np.float32)
    assert choose(logits, [1], 0, Sampling(penalty_present=0.2)).token == 2
    assert choose(logits, [1], 0, Sampling(penalty_present=0.05)).token == 1


def test_the_draw_depends_on_seed_and_position_alone():
    keys = Sampling(temperature=1.0, seed=11)
    tokens = [choose(row(), [], position, keys).token for position in range(50)]
    assert tokens == [choose(row(), [1, 2], position, keys).token for position in range(50)]
    assert tokens != [choose(row(), [], position + 1, keys).token for position in range(50)]
    assert tokens != [choose(row(), [], position, Sampling(temperature=1.0, seed=12)).token for position in range(50)]


def test_top_k_of_one_is_greedy_at_any_temperature():
    assert {choose(row(), [], p, Sampling(temperature=5.0, top_k=1, seed=2)).token for p in range(40)} == {int(row().argmax())}


@pytest.mark.parametrize("top_k", [0, 64, 65, 4096])
def test_no_token_beyond_the_64_best_is_drawn(top_k):
    best = set(np.argsort(-row(), kind="stable")[:64].tolist())
    drawn = {choose(row(), [], p, Sampling(temperature=50.0, top_k=top_k, seed=4)).token for p in range(400)}
    assert drawn <= best and len(drawn) > 50


def test_ties_at_the_top_k_border_go_to_the_lower_ids():
    logits = np.zeros(100, np.float32)
    drawn = {choose(logits, [], p, Sampling(temperature=1.0, top_k=3, seed=5)).token for p in range(100)}
    assert drawn == {0, 1, 2}


def test_draws_follow_the_probabilities():
    logits = np.log(np.array([0.5, 0.3, 0.2])).astype(np.float32)
    counts = Counter(choose(logits, [], p, Sampling(temperature=1.0, seed=6)).token for p in range(4000))
    assert [round(counts[token] / 4000, 1) for token in range(3)] == [0.5, 0.3, 0.2]


def test_a_draw_is_where_the_published_rule_puts_it():
    """A second way to the same token: cumulative sums of a plain softmax, away from the borders."""
    logits, temperature = row(200, 1.0), 0.8
    order = np.argsort(-logits, kind="stable")[:64]
    shares = np.exp((logits[order].astype(np.float64) - logits.max()) / temperature)
    borders = np.cumsum(shares / shares.sum())
    for position in range(200):
        expected = order[np.searchsorted(borders, uniform(9, position), side="right")]
        assert choose(logits, [], position, Sampling(temperature=temperature, seed=9)).token == expected


def test_log_probabilities_are_those_of_the_whole_row_before_filters():
    logits = row()
    exact = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    choice = choose(logits, [int(logits.argmax())], 3, Sampling(temperature=0.5, seed=1, top_k=2, logprobs=3, penalty_repeat=1.5))
    assert choice.logprob == pytest.approx(exact[choice.token], abs=1e-12)
    assert [i for i, _ in choice.alternatives] == np.argsort(-logits, kind="stable")[:3].tolist()
    assert [lp for _, lp in choice.alternatives] == pytest.approx([exact[i] for i, _ in choice.alternatives], abs=1e-12)


def test_no_alternatives_still_give_the_tokens_own_log_probability():
    choice = choose(row(), [], 3, Sampling(logprobs=0))
    assert choice.alternatives == () and choice.logprob < 0
    assert choose(row(), [], 3, Sampling()).logprob is None
