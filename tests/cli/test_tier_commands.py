"""The expert tier from the command line: its flags, its log line, profiles, the measurement, the variable of the rounding modes."""

import json

import pytest

from tests.cli.calls import refusal, strata
from tests.cli.harness_calls import harness, prompts_file

RUN = ("run", "--prompt", "def main", "--max-new", 6, "--context", 128)
TIER = ("--expert-cache", 150, "--pcie-frac", 0, "--adapt-every", 1)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--expert-cache", "some"), "expert_cache=some"),
        (("--expert-cache", 0), "expert_cache=0"),
        (("--pcie-frac", 1.5), "pcie_frac=1.5"),
        (("--adapt-every", -1), "adapt_every=-1"),
        (("--adapt-decay", 2), "adapt_decay=2.0"),
        (("--adapt-min-gain", -1), "adapt_min_gain=-1.0"),
        (("--mmap-experts", "--resident-experts"), "mmap_experts"),
        (("--expert-profile-save", "/no/such/folder/own.json"), "expert_profile_save=/no/such/folder/own.json"),
        (("--resident-budget-gib", 1), "resident_budget_gib=1.0"),
        (("--expert-cache", 5, "--expert-profile", "/no/such/profile.json"), "/no/such/profile.json"),
        (("--expert-cache", "auto", "--devices", "host:17m", "--context", 128), "expert cache"),
        (("--expert-cache", 5, "--devices", "host:20m", "--no-prefill-borrow"), "prompt buffers beside one slot"),
    ],
)
def test_a_wrong_value_is_one_line(flags, named):
    assert named in refusal(*RUN, *flags)


def test_another_value_of_the_variable_is_refused(monkeypatch):
    monkeypatch.setenv("STRATA_IQ_MT_MIN", "4")
    assert "STRATA_IQ_MT_MIN=4" in refusal(*RUN)


def test_an_unknown_rule_for_prompt_buffers_is_refused(monkeypatch):
    monkeypatch.setenv("STRATA_SPLIT_OWN", "yes")
    assert "STRATA_SPLIT_OWN=yes" in refusal(*RUN, *TIER)


def test_a_budget_that_is_full_lends_slots_to_the_prompt_and_says_so():
    tight = ("--devices", "host:30m", "--prompt", "def main(arguments): return [word for word in arguments if word]")
    plain, lent = strata(*RUN, *tight[2:]), strata(*RUN, *tight, "--expert-cache", "auto", "--pcie-frac", 0)
    assert lent.out == plain.out and "borrows up to" in lent.err and "slots to prompts" in lent.err
    own = strata(*RUN, *tight, "--expert-cache", "auto", "--pcie-frac", 0, "--no-prefill-borrow", "--prefill", 64)
    assert own.out == plain.out and "keeps its own" in own.err and "slots to prompts" not in own.err


def test_a_pinned_share_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("STRATA_ARENA_PIN_GIB", "all")
    assert "STRATA_ARENA_PIN_GIB=all" in refusal(*RUN, *TIER)


def test_a_pinned_copy_and_steps_give_the_same_text(monkeypatch):
    plain = strata(*RUN)
    monkeypatch.setenv("STRATA_ARENA_PIN_GIB", "0")
    assert strata(*RUN, *TIER, "--adapt-async", 1).out == plain.out


def test_a_run_with_a_tier_gives_the_same_text_and_says_what_served_it():
    plain, tiered = strata(*RUN), strata(*RUN, *TIER)
    assert plain.code == tiered.code == 0 and tiered.out == plain.out
    assert "strata batch: 5 windows" in tiered.err and "strata batch:" not in plain.err


def test_a_profile_is_saved_and_used(tmp_path):
    path = tmp_path / "own.json"
    assert strata(*RUN, "--expert-profile-save", path).code == 0
    assert len(json.loads(path.read_text())["pairs"]) > 100
    assert strata(*RUN, *TIER, "--expert-profile", path).code == 0


def test_the_plan_lists_cache_and_ring():
    out = strata("plan", "--expert-cache", 100, "--context", 128).out
    assert "expert cache" in out and "expert staging ring" in out and "blocking, every 4" in out


def test_the_measurement_compares_four_ways(tmp_path):
    path = tmp_path / "kinds.json"
    path.write_text(json.dumps([{"kind": f"kind-{i}", "ids": list(range(40 * i, 40 * i + 8))} for i in range(2)]))
    outcome = strata("bench", "tier", "--rounds", 1, "--prompts", path, "--tokens", 12, "--context", 128, "--json")
    found = json.loads(outcome.out)
    assert (found["slots"], found["experts"]) == (153, 768)
    arms = {arm["arm"]: arm for arm in found["arms"]}
    assert list(arms) == ["adaptive, async", "adaptive, blocking", "frozen, learned profile", "off"]
    assert arms["adaptive, blocking"]["swaps_per_window"] > 0 == arms["off"]["swaps_per_window"]
    assert all(arm["vram"]["median"] + arm["pcie"] + arm["cpu"] == pytest.approx(1) for arm in found["arms"])


@pytest.mark.parametrize("flags", [("--resident", 0), ("--resident", 1.5), ("--tokens", 1)])
def test_a_measurement_of_nothing_is_refused(flags):
    refusal("bench", "tier", *flags)


def test_the_variable_makes_the_harness_exact_in_mode_grouped(tmp_path, monkeypatch):
    run = ("run", "--suite", "batch", "--case", "slots-2", "--rounding", "grouped", "--prompts", prompts_file(tmp_path), "--max-new", 6, "--context", 128)
    assert harness(*run).code == 1
    monkeypatch.setenv("STRATA_IQ_MT_MIN", "1")
    assert harness(*run).code == 0


def test_the_harness_shares_a_cache_between_arms(tmp_path):
    run = ("run", "--suite", "batch", "--case", "slots-2", "--rounding", "device", "--prompts", prompts_file(tmp_path), "--max-new", 6, "--context", 128, "--expert-cache", 384)
    fixed = harness(*run, "--pcie-frac", 0, "--adapt-every", 1000000)
    moving = harness(*run, "--pcie-frac", 0.5, "--adapt-every", 1000000)
    assert (fixed.code, moving.code) == (0, 1)


def test_the_plan_says_whose_buffers_a_prompt_has():
    tight = ("plan", "--context", 128, "--devices", "host:30m", "--expert-cache", "auto", "--pcie-frac", 0)
    lent, own = strata(*tight), strata(*tight, "--no-prefill-borrow", "--prefill", 64)
    assert lent.code == own.code == 0
    assert "their buffers lent by the cache" in lent.out and "prompt chunks of up to 64 tokens, their buffers beside the cache" in own.out
