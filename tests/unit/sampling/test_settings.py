"""A request's sampling keys: what is refused, how texts are read, where a seed comes from."""

import pytest

from strata.errors import RequestError
from strata.sampling.settings import MOST_CANDIDATES, Sampling, from_keys


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1}, {"temperature": float("nan")}, {"temperature": float("inf")}, {"top_p": -1.0}, {"min_p": 1.5}, {"min_p": -0.1},
        {"top_k": -1}, {"seed": -1}, {"seed": 1 << 64}, {"penalty_last_n": -1}, {"penalty_repeat": 0.0}, {"penalty_freq": float("nan")},
        {"logprobs": 65}, {"logprobs": -2},
    ],
    ids=lambda wrong: "-".join(f"{k}={v}" for k, v in wrong.items()),
)
def test_a_key_that_makes_no_sense_is_named(wrong):
    with pytest.raises(RequestError, match=next(iter(wrong))):
        Sampling(**wrong)


@pytest.mark.parametrize(("top_k", "candidates"), [(0, 64), (1, 1), (63, 63), (64, 64), (65, 64), (1000, 64)])
def test_top_k_of_none_or_more_than_64_means_64(top_k, candidates):
    assert Sampling(top_k=top_k).n_candidates == candidates <= MOST_CANDIDATES


def test_the_defaults_choose_greedily_and_change_nothing():
    plain = Sampling()
    assert plain.is_greedy and not plain.has_penalties and plain.logprobs < 0
    assert plain.seeded(123, 4) is plain


def test_keys_are_read_by_name_and_others_left_alone():
    assert from_keys({"temperature": "0.7", "top_k": "40", "seed": "9", "ckpt": "x"}) == Sampling(temperature=0.7, top_k=40, seed=9)


@pytest.mark.parametrize("keys", [{"top_k": "4.5"}, {"temperature": "warm"}, {"seed": ""}])
def test_a_text_that_is_no_number_is_named(keys):
    with pytest.raises(RequestError, match=next(iter(keys))):
        from_keys(keys)


def test_a_draw_without_a_seed_gets_one_from_the_clock_and_each_request_its_own():
    drawn = Sampling(temperature=1.0)
    first, second, later = drawn.seeded(1000, 0), drawn.seeded(1000, 1), drawn.seeded(1001, 0)
    assert len({first.seed, second.seed, later.seed, 0}) == 4
    assert drawn.seeded(0, 0).seed == 1


def test_a_given_seed_stays():
    assert Sampling(temperature=1.0, seed=5).seeded(1000, 3).seed == 5
