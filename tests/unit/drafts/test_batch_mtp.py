"""One proposal per slot: two rows a slot, four slots a window, more take turns, and the reasons for not running it."""

import pytest

from strata.batch.requests import Request
from tests.unit.drafts.conftest import bits
from tests.unit.drafts.probes import run_corrupted

TWO_HOSTS = {"devices": "host,host", "layer_split": (6,)}


def requests_of(prompts, count: int, n_new: int = 16) -> list[Request]:
    kinds = ("chat", "code", "prose", "edit")
    return [Request(prompts[kinds[i % 4]][: 30 + 7 * i], n_new + i) for i in range(count)]


@pytest.mark.parametrize(("slots", "count", "settings"), [
    (2, 2, {}), (3, 4, {}), (4, 5, {}), (5, 5, {}), (10, 11, {}), (4, 4, TWO_HOSTS), (4, 4, {"spec_min_p": 0.5}), (2, 3, {"threads": 2}),
], ids=str)
def test_slots_with_a_proposal_each_give_the_plain_answers(run, prompts, plain, slots, count, settings):
    requests = requests_of(prompts, count)
    batch = run(requests, batch=slots, mtp=True, batch_mtp=True, **settings)
    for request, answer in zip(requests, batch.answers, strict=True):
        assert bits(answer) == bits(plain(request))
    counters = batch.counters
    assert counters["mtp_accepted"] > 0 and counters["rolled_back_windows"] > 0 and counters["windows_with_company"] > 0
    assert (counters["rotated_windows"] > 0) is (slots > 4)
    assert not batch.notes


def test_a_window_carries_two_rows_of_four_slots_at_most(run, prompts):
    batch = run(requests_of(prompts, 8), batch=8, mtp=True, batch_mtp=True)
    assert batch.counters["slot_windows"] <= 4 * batch.counters["decode_windows"]


def test_proposals_save_windows(run, prompts):
    requests = requests_of(prompts, 4)
    proposed, straight = (run(requests, batch=4, **more) for more in ({"mtp": True, "batch_mtp": True, "spec": 2}, {}))
    assert proposed.counters["decode_windows"] < straight.counters["decode_windows"]


def test_corrupted_proposals_change_speed_only(model, run, prompts, plain):
    def turn(values):
        values[:] = -values

    requests = requests_of(prompts, 4)
    batch = run_corrupted(model, requests, turn, batch=4, mtp=True, batch_mtp=True)
    assert [bits(a) for a in batch.answers] == [bits(plain(r)) for r in requests]
    assert batch.counters["rows_rejected"] > batch.counters["mtp_offered"] // 2 > 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"batch": 1, "mtp": True}, "one slot"), ({"batch": 2}, "without --mtp"),
        ({"batch": 4, "mtp": True, "batch_groups": 2, **TWO_HOSTS}, "pipelined groups"),
        ({"batch": 4, "mtp": True, "batch_groups": 0, **TWO_HOSTS}, "pipelined groups"),
        ({"batch": 2, "mtp": True, "layer_split": (6,), "split_device": (0,)}, "share a device"),
    ],
    ids=str,
)
def test_each_reason_for_not_running_it_is_one_note_and_batching_goes_on(run, prompts, plain, settings, reason):
    requests = requests_of(prompts, 2, 8)
    batch = run(requests, batch_mtp=True, **settings)
    assert [bits(a) for a in batch.answers] == [bits(plain(r)) for r in requests]
    assert [reason in note for note in batch.notes if note.startswith("batch_mtp is off")] == [True]


def test_a_count_above_eight_is_cut_without_proposals_and_not_with_them(run, prompts):
    plain_batch = run(requests_of(prompts, 2, 2), batch=10)
    assert any("runs as 8 slots" in note for note in plain_batch.notes)
