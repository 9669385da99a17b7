"""How often drafts are right, against the figures that MODEL.md gives for the shipped model in float64."""

import json

import pytest

from strata.batch.settings import EngineSettings
from strata.bench.draft_acceptance import measure
from strata.bench.draft_speed import BenchPrompt
from strata.errors import UsageError
from tests.unit.drafts.conftest import FIXTURE

N_NEW, N_DRAFTS = 48, 3
PUBLISHED = (0.720, 0.765, 0.799)
FIRST_BY_KIND = {"chat": 0.692, "code": 0.769, "prose": 0.617, "long": 0.661, "edit": 0.944}
POINTS = 0.03
POINTS_OF_A_KIND = 0.08
"""A kind has 192 to 384 positions: a share's own standard error is above two points."""


@pytest.fixture(scope="module")
def measured(model):
    prompts = [BenchPrompt(p["kind"], tuple(p["ids"])) for p in json.loads((FIXTURE / "prompts.json").read_text())]
    found = measure(model, EngineSettings(threads=1), prompts, N_NEW, N_DRAFTS, lambda text: None)
    return {one.kind: one for one in found}


def test_every_position_of_every_prompt_was_drafted(measured):
    assert measured["all"].reached[0] == 32 * N_NEW
    assert sum(one.reached[0] for kind, one in measured.items() if kind != "all") == 32 * N_NEW


def test_drafts_are_right_as_often_as_the_model_was_measured(measured):
    shares = measured["all"].shares
    assert [abs(share - published) < POINTS for share, published in zip(shares, PUBLISHED, strict=True)] == [True] * 3, shares


def test_first_drafts_are_right_as_often_in_every_kind(measured):
    shares = {kind: measured[kind].shares[0] for kind in FIRST_BY_KIND}
    assert all(abs(shares[kind] - share) < POINTS_OF_A_KIND for kind, share in FIRST_BY_KIND.items()), shares


def test_later_drafts_count_where_earlier_ones_were_right(measured):
    for one in measured.values():
        assert one.reached[1:] == one.right[:-1]


def test_a_model_without_a_draft_layer_is_refused(model):
    from dataclasses import replace

    bare = replace(model, config=replace(model.config, n_draft_layers=0))
    with pytest.raises(UsageError, match="mtp"):
        measure(bare, EngineSettings(), [], 1, 1, lambda text: None)
