"""Requests and rows at the edge: no prompt, no tokens wanted, one wanted, rows that are all -inf or tied, in every way of running."""

import numpy as np
import pytest

from strata.batch.requests import Request
from strata.errors import RequestError
from strata.sampling.settings import Sampling
from tests.unit.drafts.conftest import CONTEXT, bits
from tests.unit.drafts.probes import WriteLogits

WAYS = {
    "alone": {}, "short read": {"short_read": 64}, "chunks": {"prefill": 5}, "slots": {"batch": 3}, "drafts": {"mtp": True, "spec": 8, "spec_policy": "full"},
    "suffix": {"suffix_draft": 3, "spec": 8, "spec_policy": "full"}, "proposals": {"batch": 3, "mtp": True, "batch_mtp": True},
    "groups": {"batch": 2, "batch_groups": 2, "devices": "host,host", "layer_split": (6,)},
}
every_way = pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
DRAWN = Sampling(temperature=0.8, seed=7, logprobs=2)


@every_way
@pytest.mark.parametrize(
    ("request_", "named"),
    [(Request((), 4), r"prompt=\[\].*no token to start from"), (Request((), 0), r"prompt=\[\]"), (Request((1, 2), -1), "max_new=-1.*negative"),
     (Request((1, 4096), 2), "token id 4096"), (Request((-1,), 2), "token id -1"), (Request((1,), CONTEXT - 8), "positions"),
     (Request((1,) * CONTEXT, 1), "positions"), (Request((1, 2), 2, forced=(9999,)), "token id 9999")],
    ids=["no prompt", "no prompt, none wanted", "fewer than none", "id too high", "id too low", "too many wanted", "too long", "forced id"],
)
def test_a_request_that_cannot_be_served_is_refused_before_anything_runs(run, prompts, settings, request_, named):
    with pytest.raises(RequestError, match=named):
        run([Request(prompts["chat"], 2), request_], **settings)


@every_way
@pytest.mark.parametrize("n_new", [0, 1])
@pytest.mark.parametrize("sampling", [Sampling(), DRAWN], ids=["greedy", "drawn"])
def test_none_and_one_wanted_beside_longer_ones(run, prompts, plain, settings, n_new, sampling):
    few = Request(prompts["code"][:20], n_new, sampling=sampling)
    requests = [few, Request(prompts["chat"], 9), few, Request(prompts["code"][:1], n_new), Request(prompts["prose"][:30], 6)]
    batch = run(requests, **settings)
    assert [bits(a) for a in batch.answers] == [bits(plain(r)) for r in requests]
    assert len(batch.answers[0].tokens) == n_new and batch.answers[0].finish == "length"
    assert batch.counters["tokens"] == 15 + 3 * n_new


@every_way
@pytest.mark.parametrize("write", [-np.inf, np.nan], ids=str)
@pytest.mark.parametrize("sampling", [Sampling(), DRAWN, Sampling(penalty_repeat=1.2)], ids=["greedy", "drawn", "penalties"])
def test_a_whole_row_without_a_number_ends_its_request_with_the_tokens_before_it(run, prompts, plain, settings, write, sampling):
    requests = [Request(prompts["prose"][:30], 8), Request(prompts["edit"][:40], 12, sampling=sampling)]
    batch = run(requests, WriteLogits(1, len(requests[1].prompt) + 3, lambda row: row.fill(write)), **settings)
    assert batch.answers[1].finish == "error" and "not finite" in batch.answers[1].error
    assert batch.answers[1].tokens == plain(requests[1]).tokens[:4]
    assert bits(batch.answers[0]) == bits(plain(requests[0]))


@every_way
def test_a_tie_goes_to_the_lower_id_in_every_row(run, prompts, settings):
    """All logits equal at one position: id 0, and what follows is the same whatever was drafted."""
    request = Request(prompts["code"][:40], 12)

    def level(row):
        row.fill(1.5)

    answers = [run([request], WriteLogits(0, len(request.prompt) + 4, level), **more).answers[0] for more in ({}, settings)]
    assert bits(answers[0]) == bits(answers[1])
    assert answers[0].emitted[5].pick == 0 and answers[0].emitted[5].row.margin == 0


@every_way
def test_a_seed_of_zero_is_told_and_gives_the_same_text_again(run, prompts, settings):
    request = Request(prompts["chat"], 8, sampling=Sampling(temperature=1.4, seed=0))
    answer = run([request, request], **settings).answers
    assert 0 not in (answer[0].seed, answer[1].seed) and answer[0].seed != answer[1].seed
    again = [Request(prompts["chat"], 8, sampling=Sampling(temperature=1.4, seed=one.seed)) for one in answer]
    assert [one.tokens for one in run(again).answers] == [one.tokens for one in answer]
