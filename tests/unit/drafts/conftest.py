"""The shipped model, prompts and a plain reference answer, made once for this folder."""

import json
from functools import cache
from pathlib import Path

import pytest

from strata.batch.engine import Engine
from strata.batch.requests import Request
from strata.batch.settings import EngineSettings
from strata.model.model import load_model

FIXTURE = Path(__file__).resolve().parents[3] / "fixtures" / "strata-mini-mix"
CONTEXT = 512


@pytest.fixture(scope="session")
def model():
    return load_model(FIXTURE)


@pytest.fixture(scope="session")
def prompts():
    """Token ids of held-out prompts by kind: the first of each, cut to 64 tokens (edits whole)."""
    chosen = {}
    for prompt in json.loads((FIXTURE / "prompts.json").read_text()):
        ids = tuple(prompt["ids"])
        chosen.setdefault(prompt["kind"], ids if prompt["kind"] == "edit" and len(ids) < CONTEXT - 80 else ids[:64])
    return chosen


@pytest.fixture(scope="session")
def run(model):
    """Return run(requests, **settings): opens an engine for the call and returns its batch."""

    def run_it(requests, probe=None, **settings):
        with Engine(model, EngineSettings(**{"context": CONTEXT, "threads": 1, **settings}), probe) as engine:
            return engine.generate(requests)

    return run_it


@pytest.fixture(scope="session")
def plain(run):
    """Return plain(request): what the request gives alone and without drafts."""

    @cache
    def answer(request: Request):
        return run([request]).answers[0]

    return answer


def bits(answer) -> list:
    """What two equal answers share: tokens, positions, hashes of whole logit rows, log probabilities, and how they ended."""
    rows = [(e.position, e.pick, e.row.digest, e.logprob, e.alternatives) for e in answer.emitted]
    return [answer.finish, answer.error, answer.seed, *rows]
