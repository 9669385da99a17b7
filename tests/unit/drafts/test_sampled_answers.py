"""Sampled requests: the same tokens alone, in company, with drafts and over stages; one slot's error ends one request."""

import numpy as np
import pytest

from strata.batch import conversation
from strata.batch.requests import Request
from strata.sampling.settings import Sampling
from tests.unit.drafts.conftest import bits
from tests.unit.drafts.probes import WriteLogits

N_NEW = 16
KEYS = {
    "greedy": Sampling(),
    "cool": Sampling(temperature=0.4, seed=1),
    "warm": Sampling(temperature=1.0, top_p=0.9, seed=2),
    "hot": Sampling(temperature=1.6, top_k=20, min_p=0.02, seed=(1 << 63) + 5),
    "penalised": Sampling(penalty_repeat=1.3, penalty_freq=0.2, penalty_present=0.1, penalty_last_n=24),
    "penalised draw": Sampling(temperature=0.7, penalty_repeat=1.2, seed=3, logprobs=2),
    "log probabilities": Sampling(logprobs=4),
}
ARMS = {
    "in company": {"batch": 4},
    "drafts": {"mtp": True, "spec": 5, "spec_policy": "full"},
    "coupled drafts": {"mtp": True, "spec": 5, "spec_policy": "full", "coupled_drafts": True},
    "suffix drafts": {"suffix_draft": 3, "spec": 8, "spec_policy": "full"},
    "proposals": {"batch": 4, "mtp": True, "batch_mtp": True},
    "groups over stages": {"batch": 4, "batch_groups": 2, "devices": "host,host", "layer_split": (6,)},
}


def requests_of(prompts) -> list[Request]:
    kinds = ("code", "edit", "prose", "code", "prose", "chat", "code")
    return [Request(prompts[kind], N_NEW, sampling=keys) for kind, keys in zip(kinds, KEYS.values(), strict=True)]


@pytest.mark.parametrize("settings", ARMS.values(), ids=ARMS)
def test_each_way_of_running_draws_the_same_tokens(run, prompts, plain, settings):
    requests = requests_of(prompts)
    batch = run(requests, **settings)
    assert [bits(a) for a in batch.answers] == [bits(plain(r)) for r in requests]
    drafts = "mtp" in settings or "suffix_draft" in settings
    assert (batch.counters["drafts_accepted"] > 0) is drafts
    assert (batch.counters["rolled_back_windows"] > 0) is ("mtp" in settings)


def test_the_keys_do_change_the_text(prompts, plain):
    texts = {plain(Request(prompts["chat"], 32, sampling=keys)).tokens for keys in KEYS.values()}
    assert len(texts) == len(KEYS) - 1, "log probabilities alone change nothing, all other keys do"


@pytest.mark.parametrize("seed", [4, 5])
def test_another_seed_draws_otherwise_and_the_same_one_again(run, prompts, plain, seed):
    request = Request(prompts["prose"], N_NEW, sampling=Sampling(temperature=1.2, seed=seed))
    assert bits(run([request]).answers[0]) == bits(plain(request))
    other = Request(prompts["prose"], N_NEW, sampling=Sampling(temperature=1.2, seed=seed + 10))
    assert plain(request).tokens != plain(other).tokens


def test_a_seed_beside_requests_without_one_is_honoured(run, prompts, plain):
    seeded = Request(prompts["code"], N_NEW, sampling=Sampling(temperature=1.0, seed=9))
    others = [Request(prompts[k], N_NEW, sampling=Sampling(temperature=1.0, top_p=p)) for k, p in (("chat", 1.0), ("prose", 0.5))]
    batch = run([others[0], seeded, others[1], Request(prompts["code"], N_NEW)], batch=4)
    assert bits(batch.answers[1]) == bits(plain(seeded))
    assert bits(batch.answers[3]) == bits(plain(Request(prompts["code"], N_NEW)))


def test_a_seed_of_zero_is_taken_from_the_clock_told_and_repeatable(run, prompts):
    request = Request(prompts["chat"], N_NEW, sampling=Sampling(temperature=1.5))
    first, second = (run([request]).answers[0] for _ in range(2))
    assert first.seed and second.seed and first.seed != second.seed
    again = Request(prompts["chat"], N_NEW, sampling=Sampling(temperature=1.5, seed=first.seed))
    assert run([again]).answers[0].tokens == first.tokens


def test_a_greedy_answer_tells_no_seed(plain, prompts):
    assert plain(Request(prompts["chat"], N_NEW)).seed == 0


def test_penalties_see_the_rows_of_their_own_window(run, prompts, plain):
    """With a strong presence penalty a token that a window's earlier row brought in is out of reach for its later rows."""
    request = Request(prompts["edit"][:80], 24, sampling=Sampling(penalty_present=30.0, penalty_last_n=4096))
    answer = plain(request)
    assert len(set(answer.tokens)) == len(answer.tokens)

    def right(emitted):
        return answer.tokens[len(emitted) : len(emitted) + 7]

    batch = run([Request(request.prompt, 24, sampling=request.sampling, drafts=right)])
    assert bits(batch.answers[0]) == bits(answer)
    assert batch.counters["given_accepted"] == batch.counters["given_offered"] > 0


def test_coupled_drafts_are_drawn_and_others_are_the_best(run, prompts):
    """At a high temperature a draw seldom is the best token: the drafts differ, the answer does not."""
    request = Request(prompts["code"], 24, sampling=Sampling(temperature=2.0, seed=8))
    best, drawn = (run([request], mtp=True, spec_policy="full", coupled_drafts=coupled) for coupled in (False, True))
    assert bits(best.answers[0]) == bits(drawn.answers[0])
    assert best.counters["mtp_accepted"] != drawn.counters["mtp_accepted"]


def test_coupled_drafts_without_a_draft_layer_are_noted(run, prompts):
    assert any("coupled_drafts" in note for note in run([Request(prompts["code"], 1)], coupled_drafts=True).notes)


def test_sampled_text_is_drafted_too(run, prompts):
    batch = run([Request(prompts["code"], 32, sampling=Sampling(temperature=0.3, seed=8))], mtp=True, spec_policy="full")
    assert batch.counters["mtp_accepted"] > batch.counters["mtp_offered"] // 5


@pytest.mark.parametrize("write", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("whole", [True, False], ids=["whole row", "one value"])
@pytest.mark.parametrize("settings", [{"batch": 3}, {"batch": 3, "mtp": True, "batch_mtp": True}], ids=["batch", "proposals"])
def test_a_row_that_is_not_finite_ends_its_request_only(run, prompts, plain, write, whole, settings):
    requests = [Request(prompts[k][:30], N_NEW, sampling=s) for k, s in (("code", KEYS["warm"]), ("chat", KEYS["warm"]), ("prose", KEYS["greedy"]))]

    def spoil(row):
        row[slice(None) if whole else 7] = write

    batch = run(requests, WriteLogits(1, len(requests[1].prompt) + 4, spoil), **settings)
    assert batch.answers[1].finish == "error" and "not finite" in batch.answers[1].error
    assert batch.answers[1].tokens == plain(requests[1]).tokens[:5]
    assert [bits(batch.answers[i]) for i in (0, 2)] == [bits(plain(requests[i])) for i in (0, 2)]


def test_a_prompts_row_that_is_not_finite_ends_its_request_only(run, prompts, plain):
    requests = [Request(prompts[k], 6) for k in ("code", "chat", "prose")]
    batch = run(requests, WriteLogits(1, len(requests[1].prompt) - 1, lambda row: row.fill(np.nan)), batch=2)
    assert batch.answers[1].finish == "error" and batch.answers[1].tokens == ()
    assert [bits(batch.answers[i]) for i in (0, 2)] == [bits(plain(requests[i])) for i in (0, 2)]


def test_a_rejected_row_that_is_not_finite_is_never_seen(run, prompts, plain):
    request = Request(prompts["code"], 8)
    right = plain(request).tokens
    wrong = Request(prompts["code"], 8, drafts=lambda emitted: ((right[len(emitted)] + 1) % 4000, 5, 6))
    spoiled = len(request.prompt) + 2

    class Rejected(WriteLogits):
        """Spoils the row only where it lies behind a wrong draft."""

        def see(self, stage, window, point, layer, values, place):
            if window.segments[0].start < spoiled:
                super().see(stage, window, point, layer, values, place)

    batch = run([wrong], Rejected(0, spoiled, lambda row: row.fill(np.nan)))
    assert bits(batch.answers[0]) == bits(plain(request)) and batch.counters["rows_rejected"] > 0


@pytest.mark.parametrize("settings", ARMS.values(), ids=ARMS)
def test_an_exception_in_one_slots_sampler_ends_that_request_only(run, prompts, plain, settings, monkeypatch):
    requests = [Request(prompts[k][:40], 8, sampling=Sampling(temperature=1.0, seed=s)) for s, k in enumerate(("code", "chat", "prose", "edit"), 1)]
    expected = [bits(plain(request)) for request in requests]
    sound = conversation.choose

    def choose(logits, history, position, sampling):
        if sampling.seed == 3 and position > len(requests[2].prompt) + 2:
            raise ZeroDivisionError("planted in slot 3's sampler")
        return sound(logits, history, position, sampling)

    monkeypatch.setattr(conversation, "choose", choose)
    batch = run(requests, **settings)
    assert batch.answers[2].finish == "error" and "planted" in batch.answers[2].error and len(batch.answers[2].emitted) == 4
    assert [bits(batch.answers[i]) for i in (0, 1, 3)] == [expected[i] for i in (0, 1, 3)]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, top_k=2, seed=6), Sampling(temperature=1.0, top_p=0.3, seed=6)], ids=str)
def test_exact_ties_go_to_the_lower_ids(run, prompts, sampling):
    request = Request(prompts["code"], 3, sampling=sampling)

    def tie(row):
        row[:] = np.float32(-1)
        row[[9, 300, 4000]] = np.float32(2)

    answers = [run([request], WriteLogits(0, len(request.prompt) - 1, tie), **more).answers[0] for more in ({}, {"batch": 2})]
    assert answers[0].emitted[0].pick == answers[1].emitted[0].pick
    assert answers[0].emitted[0].pick in ((9,) if sampling.is_greedy else (9, 300))
