"""The other selection rule, `whole-blocks`: other bits than `fill` once blocks are chosen, and the same in every way of running."""

import json

import pytest

from strata.batch.requests import Request
from strata.errors import UsageError
from tests.unit.drafts.conftest import FIXTURE, bits

RULE = {"selection": "whole-blocks"}
TWO_HOSTS = {"devices": "host,host", "layer_split": (6,)}


@pytest.fixture(scope="module")
def deep():
    """A prompt past the selection's 259 cells."""
    entries = json.loads((FIXTURE / "prompts.json").read_text())
    return Request(tuple(next(entry["ids"] for entry in entries if entry["kind"] == "long"))[:275], 10)


@pytest.mark.parametrize(
    "settings", [{"prefill": 32}, {"batch": 2}, {"mtp": True, "spec_policy": "full"}, {"batch": 2, "mtp": True, "batch_mtp": True}, TWO_HOSTS], ids=str
)
def test_every_way_of_running_chooses_the_same_blocks(run, prompts, deep, settings):
    requests = [deep, Request(prompts["code"], 6)]
    alone = [run([request], **RULE).answers[0] for request in requests]
    assert [bits(a) for a in run(requests, **RULE, **settings).answers] == [bits(a) for a in alone]


def test_the_rule_changes_bits_past_the_selections_width_and_none_before(run, prompts, plain, deep):
    whole = run([deep], **RULE).answers[0]
    digests = [[e.row.digest for e in answer.emitted] for answer in (whole, plain(deep))]
    assert digests[0] != digests[1]
    short = Request(prompts["code"], 6)
    assert bits(run([short], **RULE).answers[0]) == bits(plain(short))


def test_a_rule_that_there_is_not_is_named(run, prompts):
    with pytest.raises(UsageError, match="selection=half-blocks"):
        run([Request(prompts["code"], 1)], selection="half-blocks")
