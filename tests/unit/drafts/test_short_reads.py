"""Short reads: prompts, or their ends, by windows of eight rows; the same bits, and proof of how they were read."""

import pytest

from strata.batch.requests import Request
from strata.split.probes import SilentProbe
from tests.unit.drafts.conftest import bits

N_NEW = 8
TWO_HOSTS = {"devices": "host,host", "layer_split": (6,)}


class Widths(SilentProbe):
    """Notes the rows of every window whose segment lies in the prompt."""

    points = frozenset()

    def __init__(self, n_prompt: int) -> None:
        self.n_prompt, self.seen = n_prompt, []

    def began(self, stage, window):
        if window.segments[0].start < self.n_prompt:
            self.seen.append(window.n_rows)


@pytest.mark.parametrize(
    ("n", "prefill", "short", "expected"),
    [(1, 0, 8, [1]), (7, 0, 8, [7]), (8, 0, 8, [8]), (9, 0, 8, [9]), (9, 0, 9, [8, 1]), (17, 0, 64, [8, 8, 1]), (40, 0, 0, [40]), (40, 0, 39, [40]),
     (40, 16, 8, [16, 16, 8]), (40, 16, 24, [16, 8, 8, 8]), (40, 16, 7, [16, 16, 8]), (12, 5, 64, [5, 5, 2]), (20, 5, 10, [5, 5, 5, 5])],
    ids=str,
)
def test_what_is_left_of_a_prompt_is_read_by_windows_where_it_is_short(run, prompts, plain, n, prefill, short, expected):
    request, probe = Request(prompts["code"][:n], N_NEW), Widths(n)
    batch = run([request], probe, prefill=prefill, short_read=short)
    assert bits(batch.answers[0]) == bits(plain(request))
    assert probe.seen == expected
    n_short = sum(n - sum(expected[:i]) <= short for i in range(len(expected)))
    counters = batch.counters
    assert (counters["short_reads"], counters["short_read_windows"]) == (int(n_short > 0), n_short)
    assert counters["prompt_chunks"] == len(expected) - n_short


@pytest.mark.parametrize("settings", [{"mtp": True, "spec_policy": "full"}, {"mtp": True, "suffix_draft": 3, "spec": 8}], ids=str)
def test_drafts_behind_a_short_read_are_those_behind_a_chunk(run, prompts, plain, settings):
    request = Request(prompts["edit"][:60], 24)
    short, whole = (run([request], short_read=n, **settings) for n in (64, 0))
    assert bits(short.answers[0]) == bits(whole.answers[0]) == bits(plain(request))
    same = ("draft_steps", "draft_cells", "drafts_offered", "drafts_accepted", "slot_windows")
    assert [short.counters[name] for name in same] == [whole.counters[name] for name in same]
    assert short.counters["short_read_windows"] == 8 and short.counters["drafts_accepted"] > 0


@pytest.mark.parametrize(
    "settings", [{"batch": 4}, {"batch": 4, "mtp": True, "batch_mtp": True}, {"batch": 4, "batch_groups": 2, **TWO_HOSTS}, {"batch": 2, **TWO_HOSTS}], ids=str
)
def test_slots_and_stages_read_short_prompts_too(run, prompts, plain, settings):
    requests = [Request(prompts[k][: 20 + 9 * i], N_NEW + i, arrive_after=2 * i) for i, k in enumerate(("code", "chat", "prose", "code", "prose"))]
    batch = run(requests, short_read=40, prefill=32, **settings)
    assert [bits(a) for a in batch.answers] == [bits(plain(r)) for r in requests]
    assert batch.counters["short_reads"] == 5 and batch.counters["chunked_prompts"] > 0
