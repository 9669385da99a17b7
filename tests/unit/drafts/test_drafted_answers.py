"""Drafts change how fast an answer comes and nothing else: tokens and whole logit rows, bit by bit."""

import numpy as np
import pytest

from strata.batch.requests import Request
from strata.errors import UsageError
from tests.unit.drafts.conftest import CONTEXT, bits
from tests.unit.drafts.probes import run_corrupted

N_NEW = 20
FULL = {"mtp": True, "spec_policy": "full"}


def requests_of(prompts, n_new: int = N_NEW, **keys) -> list[Request]:
    return [Request(prompts[kind], n_new, **keys) for kind in ("chat", "code", "edit")]


def assert_plain(batch, requests, plain) -> None:
    for request, answer in zip(requests, batch.answers, strict=True):
        assert bits(answer) == bits(plain(request))


@pytest.mark.parametrize("spec", range(2, 9))
def test_every_width_gives_the_plain_answer(run, prompts, plain, spec):
    requests = requests_of(prompts)
    batch = run(requests, spec=spec, **FULL)
    assert_plain(batch, requests, plain)
    assert batch.counters["mtp_offered"] > batch.counters["mtp_accepted"] > 0
    assert batch.counters["rolled_back_windows"] > 0 and batch.counters[f"mtp_reached_{spec - 1}"] > 0
    assert batch.counters.get(f"mtp_reached_{spec}", 0) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"mtp": True}, {"mtp": True, "spec": 8}, {"mtp": True, "spec_min_p": 0.9, "spec_policy": "full"}, {"suffix_draft": 3, "spec": 8},
        {"suffix_draft": 3, "spec": 8, "spec_policy": "full"}, {"mtp": True, "suffix_draft": 3, "spec": 8},
        {"mtp": True, "suffix_draft": 8, "spec": 8, "spec_policy": "full"}, {"mtp": True, "prefill": 17, "spec_policy": "full"},
        {"mtp": True, "kv": "int8", "spec_policy": "full"}, {"mtp": True, "layer_split": (6,), "split_device": (0,), "spec_policy": "full"},
        {"mtp": True, "layer_split": (3, 7), "devices": "host,host,host", "spec_policy": "full"}, {"mtp": True, "threads": 2, "spec_policy": "full"},
    ],
    ids=str,
)
def test_every_draft_setting_gives_the_plain_answer(run, prompts, settings):
    requests = requests_of(prompts)
    batch = run(requests, **settings)
    same_but_drafts = {k: v for k, v in settings.items() if k == "kv"}
    reference = run(requests, **same_but_drafts)
    assert [bits(a) for a in batch.answers] == [bits(a) for a in reference.answers]
    assert batch.counters["drafts_accepted"] > 0
    assert batch.counters["decode_windows"] < reference.counters["decode_windows"]


def test_copied_passages_take_several_tokens_a_window(run, prompts):
    batch = run([Request(prompts["edit"], 48)], suffix_draft=3, spec=8, spec_policy="full")
    assert batch.counters["suffix_hits"] > 0 and batch.counters["suffix_accepted"] > 20
    assert batch.counters["slot_windows"] < 20


def test_a_suffix_that_the_draft_layer_disagrees_with_is_not_used(run, prompts):
    batch = run(requests_of(prompts), mtp=True, suffix_draft=3, spec=8, spec_policy="full")
    assert batch.counters["suffix_refused"] > 0 and batch.counters["suffix_hits"] > 0 and batch.counters["mtp_accepted"] > 0


def test_a_least_probability_of_one_leaves_only_certain_drafts(run, prompts, plain):
    requests = requests_of(prompts)
    batch = run(requests, spec_min_p=1.0, **FULL)
    assert_plain(batch, requests, plain)
    assert batch.counters["draft_steps"] > 0 and batch.counters["mtp_offered"] < run(requests, **FULL).counters["mtp_offered"] // 4


def test_a_request_has_its_own_least_probability(run, prompts):
    strict = run([Request(prompts["code"], N_NEW, spec_min_p=1.0)], **FULL)
    loose = run([Request(prompts["code"], N_NEW, spec_min_p=0.0)], spec_min_p=1.0, **FULL)
    assert strict.counters["mtp_offered"] < loose.counters["mtp_offered"]


def _turned(values: np.ndarray) -> None:
    values[:] = -values


def _nothing(values: np.ndarray) -> None:
    values[:] = np.nan


@pytest.mark.parametrize("corrupt", [_turned, _nothing])
def test_corrupted_drafts_change_speed_only(model, run, prompts, plain, corrupt):
    requests = requests_of(prompts)
    batch = run_corrupted(model, requests, corrupt, **FULL)
    assert_plain(batch, requests, plain)
    sound = run(requests, **FULL)
    assert batch.counters["slot_windows"] > sound.counters["slot_windows"]
    assert batch.counters["mtp_accepted"] < sound.counters["mtp_accepted"] // 4


def test_a_draft_vocabulary_without_the_right_token_changes_speed_only(model, run, prompts, plain):
    request = Request(prompts["code"], N_NEW)
    picked = {e.pick for e in plain(request).emitted}
    ids = np.array(model.config.draft_token_ids)
    hidden = np.isin(ids, list(picked))
    assert hidden.any()

    def hide(values: np.ndarray) -> None:
        values[:, hidden] = -np.inf

    batch = run_corrupted(model, [request], hide, **FULL)
    assert bits(batch.answers[0]) == bits(plain(request))
    assert batch.counters["mtp_offered"] > 0 == batch.counters["mtp_accepted"]


@pytest.mark.parametrize("n_new", [0, 1, 2, 3])
def test_short_answers_use_no_more_drafts_than_they_have_room_for(run, prompts, plain, n_new):
    request = Request(prompts["code"], n_new)
    batch = run([request], spec=8, **FULL)
    assert bits(batch.answers[0]) == bits(plain(request))
    assert len(batch.answers[0].emitted) == n_new
    assert batch.counters["drafts_offered"] <= max(0, n_new - 2) * n_new
    assert n_new > 2 or batch.counters["draft_steps"] == 0


def test_a_request_that_fills_the_context_drafts_to_its_end(run, prompts, plain):
    prompt = prompts["code"][:40]
    request = Request(prompt, CONTEXT - 8 - len(prompt))
    short = {"context": len(prompt) + 30 + 8}
    request = Request(prompt, 30)
    batch = run([request], spec=8, **FULL, **short)
    assert bits(batch.answers[0]) == bits(plain(request))
    assert batch.counters["mtp_accepted"] > 0


@pytest.mark.parametrize("n", [15, 16, 17, 31, 32, 33, 48])
def test_prompts_around_a_chunks_end_draft_alike(run, prompts, plain, n):
    request = Request(prompts["prose"][:n], 12)
    chunked = run([request], prefill=16, **FULL)
    whole = run([request], **FULL)
    assert bits(chunked.answers[0]) == bits(whole.answers[0]) == bits(plain(request))
    same = ("mtp_offered", "mtp_accepted", "draft_steps", "draft_cells", "slot_windows")
    assert [chunked.counters[name] for name in same] == [whole.counters[name] for name in same]


def test_many_short_requests_draft_as_the_first_of_an_engine_does(run, prompts, plain):
    """A draft layer fed with rows of the request before would draft otherwise from the second request on."""
    requests = [Request(prompts[kind][:n], 6) for n in (1, 2, 9, 30) for kind in ("chat", "prose", "code")]
    batch = run(requests, **FULL)
    assert_plain(batch, requests, plain)
    alone = [run([request], **FULL).counters for request in requests]
    for name in ("mtp_offered", "mtp_accepted", "draft_steps", "draft_cells"):
        assert batch.counters[name] == sum(counters[name] for counters in alone)


def test_an_end_token_stops_in_the_middle_of_a_window(run, prompts, plain):
    free = plain(Request(prompts["code"], N_NEW)).tokens
    request = Request(prompts["code"], N_NEW, stop_tokens=frozenset({free[7]}))
    batch = run([request], spec=8, **FULL)
    assert bits(batch.answers[0]) == bits(plain(request))
    assert batch.answers[0].finish == "stop"


def test_forced_tokens_are_what_drafts_are_checked_against(run, prompts):
    forced = tuple(prompts["prose"][40:64])
    request = Request(prompts["prose"][:40], len(forced), forced=forced)
    drafted, straight = run([request], **FULL), run([request])
    assert bits(drafted.answers[0]) == bits(straight.answers[0])
    assert 0 < drafted.counters["mtp_accepted"] < drafted.counters["mtp_offered"]


def test_a_request_alone_in_a_slot_drafts_and_one_in_company_does_not(run, prompts, plain):
    requests = [Request(prompts["code"], 30), Request(prompts["chat"], 5), Request(prompts["prose"], 6, arrive_after=12)]
    batch = run(requests, batch=2, **FULL)
    assert_plain(batch, requests, plain)
    assert batch.counters["windows_with_company"] > 0 and batch.counters["mtp_accepted"] > 0


def test_a_request_alone_in_pipelined_groups_drafts_too(run, prompts, plain):
    requests = [Request(prompts["code"], 24), Request(prompts["chat"], 3, arrive_after=4), Request(prompts["prose"], 12, arrive_after=6)]
    batch = run(requests, batch=2, batch_groups=2, devices="host,host", layer_split=(6,), prefill=16, **FULL)
    assert_plain(batch, requests, plain)
    assert batch.counters["windows_with_company"] == 0 < batch.counters["group_turns"], "two groups of one slot each"
    assert batch.counters["mtp_accepted"] > 0 and batch.counters["overlaps"] > 0


def test_the_work_is_the_same_each_time(run, prompts):
    counters = [run(requests_of(prompts), mtp=True, suffix_draft=3, spec=8).counters for _ in range(2)]
    assert counters[0] == counters[1]


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"spec": 0}, "spec=0"), ({"spec": 9}, "spec=9"), ({"spec_min_p": 1.5}, "spec_min_p"), ({"suffix_draft": 2}, "suffix_draft=2"),
     ({"suffix_draft": 33}, "suffix_draft=33"), ({"spec_policy": "hope"}, "spec_policy=hope")],
)
def test_a_draft_setting_that_makes_no_sense_is_named(run, prompts, settings, named):
    with pytest.raises(UsageError, match=named):
        run(requests_of(prompts), **settings)


def test_one_row_a_window_drafts_nothing_and_says_so(run, prompts, plain):
    requests = requests_of(prompts)
    batch = run(requests, mtp=True, suffix_draft=3, spec=1)
    assert_plain(batch, requests, plain)
    assert len(batch.notes) == 2 and batch.counters["draft_steps"] == 0
