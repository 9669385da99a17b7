"""Drafts and draws on the command line: the same text whatever drafts, seeds told, bad keys named, the bench of drafts."""

import json

import pytest

from strata.host.drafts import COSTS
from tests.cli.calls import strata

PROMPT = ("run", "--prompt-ids", "788,198,1450", "--max-new", 12, "--context", 128)


def test_drafts_print_the_same_text_and_say_how_they_fared():
    plain = strata(*PROMPT)
    drafted = strata(*PROMPT, "--mtp", "--suffix-draft", 3, "--spec-policy", "full")
    assert drafted.out == plain.out
    assert "drafts accepted" in drafted.err and "drafts accepted" not in plain.err


def test_a_seed_is_told_and_repeats_the_text():
    drawn = strata(*PROMPT, "--temperature", 5)
    seed = drawn.err.rpartition("seed ")[2].split()[0]
    assert strata(*PROMPT, "--temperature", 5, "--seed", seed, "--mtp").out == drawn.out
    assert strata(*PROMPT, "--temperature", 5, "--seed", int(seed) ^ 1).out != drawn.out


def test_log_probabilities_stand_below_the_text_with_their_alternatives():
    plain, told = strata(*PROMPT), strata(*PROMPT, "--logprobs", 2)
    assert told.out == plain.out
    lines = [line for line in told.err.splitlines() if line.startswith("strata: token ")]
    assert len(lines) == 12 and all(line.count("(") == 2 for line in lines)
    own, best = lines[0].split(" logprob ")[1].split(": ")
    assert float(own) <= 0 and lines[0].split()[2] == best.split()[0]
    assert "strata: token " not in plain.err


def test_what_runs_otherwise_than_asked_and_where_drafters_are_is_told():
    told = strata(*PROMPT, "--batch", 12, "--mtp", "--batch-mtp", "--devices", "host:45m", "--short-read", 64)
    assert told.code == 0
    assert "strata: batch=12 runs as " in told.err and "memory holds no more" in told.err
    assert "strata: --batch-mtp: " in told.err and " slot drafters on host[0] (" in told.err and "MiB free" in told.err
    assert "batch_mtp is off: there is no draft layer without --mtp" in strata(*PROMPT, "--batch", 2, "--batch-mtp").err


@pytest.mark.parametrize(
    ("flags", "named"),
    [(("--temperature", -1), "temperature=-1"), (("--top-k", -1), "top_k=-1"), (("--min-p", 2), "min_p=2"), (("--seed", -5), "seed=-5"),
     (("--logprobs", 65), "logprobs=65"), (("--short-read", -1), "short_read=-1"), (("--spec", 0), "spec=0"), (("--spec-min-p", 2), "spec_min_p=2"),
     (("--spec", 9), "spec=9"), (("--suffix-draft", 2), "suffix_draft=2"), (("--spec-policy", "x"), "spec_policy=x")],
)
def test_a_key_that_makes_no_sense_is_one_line_that_names_it(flags, named):
    result = strata(*PROMPT, *flags)
    assert result.code == 2 and named in result.err and result.err.strip().count("\n") == 0


def test_the_variable_asks_for_proposals(monkeypatch):
    monkeypatch.setenv("STRATA_BATCH_MTP", "1")
    planned = json.loads(strata("plan", "--json", "--mtp", "--batch", 2, "--context", 64).out)
    assert planned["settings"]["batch_mtp"] == "yes"
    assert {"draft layer", "draft cells"} <= planned["devices"][0]["purposes"].keys()
    monkeypatch.delenv("STRATA_BATCH_MTP")
    assert json.loads(strata("plan", "--json", "--mtp", "--batch", 2, "--context", 64).out)["settings"]["batch_mtp"] == "no"


def test_the_bench_of_costs_counts_in_windows_of_one_row(tmp_path):
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps([{"kind": "a", "ids": [788, 198, 1450] * 4}]))
    flags = ("--prompts", prompts, "--rounds", 1, "--context", 64, "--threads", 1, "--costs")
    found = json.loads(strata("bench", "drafts", *flags, "--json").out)
    assert found["n_positions"] == 12 and found["one_row_ms"]["median"] > 0
    assert list(found["in_windows"])[:5] == [f"window of {n} rows" for n in (2, 3, 4, 6, 8)] and len(found["in_windows"]) == 8
    assert found["in_windows"]["window of 8 rows"]["median"] > 1 and found["row"] > 0 and 0 < found["draft"] < 1
    text = strata("bench", "drafts", *flags).out
    assert "a further row" in text and f"the policy reckons with {COSTS.row}" in text


def test_the_bench_of_costs_names_a_context_that_is_too_short(tmp_path):
    result = strata("bench", "drafts", "--rounds", 1, "--context", 32, "--costs")
    assert result.code == 2 and "positions are needed" in result.err


def test_the_bench_of_drafts_pairs_every_arm_with_none(tmp_path):
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps([{"kind": kind, "ids": [788, 198, 1450, 788, 198, 1450 + i]} for i, kind in enumerate("abab")]))
    flags = ("--prompts", prompts, "--rounds", 1, "--tokens", 8, "--per-kind", 2, "--context", 64, "--threads", 1)
    document = json.loads(strata("bench", "drafts", *flags, "--json").out)
    assert [(one["kind"], one["reached"][0]) for one in document["acceptance"]] == [("all", 32), ("a", 16), ("b", 16)]
    tables = document["speed"]
    assert list(tables) == ["one request", "2 slots", "4 slots"]
    for gains in tables.values():
        assert all(gain["ratio"]["median"] == 1 for gain in gains if gain["arm"] == "without drafts")
    solo = {(gain["arm"], gain["kind"]) for gain in tables["one request"]}
    assert {("--mtp", kind) for kind in ("all", "a", "b")} <= solo and len({arm for arm, _ in solo}) == 5
    out = strata("bench", "drafts", *flags).out
    assert "tokens/window" in out and "right at every position" in out
