"""Wrong steps must be seen: the reference check fails for every misreading, and hand-made cases tell rules apart."""

import numpy as np
import pytest

from tests.oracle import operations as ops
from tests.oracle.compare import SAME_STEPS, STORED_AS_FLOAT32, VISIBLE, relative_error
from tests.oracle.drafts import OracleDrafts
from tests.oracle.fixture_model import load_oracle, load_reference
from tests.oracle.model import OracleSession
from tests.oracle.recorder import Recorder
from tests.oracle.wrong_selection import WRONG_FILLS, WRONG_SCORES, ranked_cells
from tests.oracle.wrong_steps import WRONG_STEPS

WIDTH, BLOCK = 11, 4
FILLS_THAT_MATTER_ON_TEXT = [step for step in WRONG_FILLS if step.what.startswith(("lets tail", "takes"))]
"""On the long prompt zero scores never reach the limit, and the query's own block wins by itself."""


def what(step) -> str:
    """The name of a case."""
    return step.what


def logits_error(prompt: int = 0) -> float:
    """Relative error of a reference prompt's last eight logit rows."""
    logits = OracleSession(load_oracle()).advance(load_reference()[f"p{prompt}_ids"])
    return relative_error(logits[-8:], load_reference()[f"p{prompt}_logits"])


def score_error() -> float:
    """Largest relative error of prompt 0's block scores over the sparse layers."""
    recorder = Recorder(["block_scores"])
    OracleSession(load_oracle(), recorder).advance(load_reference()["p0_ids"])
    pairs = ((recorder.rows("block_scores", 4 * m + 3)[-1], load_reference()[f"p0_block_scores_{m}"]) for m in range(3))
    return max(relative_error(actual, stored) for actual, stored in pairs)


def replace_step(monkeypatch, step) -> None:
    """Put a wrong step in its place for one test."""
    monkeypatch.setattr(f"tests.oracle.{step.target}", step.replacement)


def test_the_right_steps_pass_the_checks_used_here():
    assert logits_error() < STORED_AS_FLOAT32
    assert score_error() < STORED_AS_FLOAT32


@pytest.mark.parametrize("step", WRONG_STEPS, ids=what)
def test_a_wrong_step_moves_the_logits_visibly(monkeypatch, step):
    replace_step(monkeypatch, step)
    assert logits_error() > VISIBLE


@pytest.mark.parametrize("step", WRONG_SCORES, ids=what)
def test_a_wrong_score_moves_the_block_scores_visibly(monkeypatch, step):
    replace_step(monkeypatch, step)
    assert score_error() > VISIBLE


def scored_positions() -> list[tuple[np.ndarray, int]]:
    """Scores with ties and zeros at positions beyond the width, with and without a tail."""
    generator = np.random.default_rng(41)
    return [(generator.integers(0, 3, size=(p + 1) // BLOCK) * 0.5, p) for p in range(WIDTH, 60)]


def test_the_reference_ranking_of_cells_is_the_rule():
    for scores, position in scored_positions():
        expected = np.sort(ranked_cells(scores, position, BLOCK)[:WIDTH])
        assert np.array_equal(ops.select_cells(scores, position, WIDTH, BLOCK), expected)


@pytest.mark.parametrize("step", WRONG_FILLS, ids=what)
def test_a_wrong_fill_selects_other_cells(step):
    cases = [(scores, position, WIDTH, BLOCK) for scores, position in scored_positions()]
    assert any(not np.array_equal(ops.select_cells(*case), step.replacement(*case)) for case in cases)


@pytest.mark.slow
@pytest.mark.parametrize("step", FILLS_THAT_MATTER_ON_TEXT, ids=what)
def test_a_wrong_fill_moves_the_logits_of_the_long_prompt(monkeypatch, step):
    replace_step(monkeypatch, step)
    assert logits_error(prompt=2) > VISIBLE


def test_router_ties_to_the_higher_index_are_told_apart():
    logits = np.array([[1.0, 3.0, 3.0, 2.0, 2.0]])
    lower, weights = ops.router(logits, 3)
    mirrored, same_weights = ops.router(logits[:, ::-1], 3)
    higher = 4 - mirrored
    assert (lower.tolist(), higher.tolist()) == ([[1, 2, 3]], [[2, 1, 4]])
    assert relative_error(same_weights, weights) < SAME_STEPS


def test_signed_hashes_are_told_apart():
    multipliers, sizes, offsets = (2**62 + 3, 2**59 + 5, 2**63 + 1), (1009, 1013), (0, 1009)
    rows = ops.ple_hash_rows([7], [4, 5], multipliers, sizes, offsets, heads_per_ngram=1, end_token=99)
    bigram = ((7 * multipliers[0]) % 2**64) ^ ((5 * multipliers[1]) % 2**64)
    assert rows[0, 0] == bigram % 1009
    assert rows[0, 0] != (bigram - 2**64) % 1009
    assert rows[0, 0] != ((7 * multipliers[0]) ^ (5 * multipliers[1])) % 1009


def draft_error(drafts: OracleDrafts, session: OracleSession, following: list[int]) -> float:
    """Relative error of the first three drafts' probabilities on prompt 0."""
    drafts.extend(session.residuals, following)
    probabilities = [proposal.probability for proposal in drafts.propose(3)]
    return relative_error(probabilities, load_reference()["p0_draft_prob"][0])


WRONG_PAIRS = ("per stream norm", "mean of streams", "token of another cell")


def wrong_pair(name: str):
    """A misreading of how the draft layer pairs residual and token."""
    right = OracleDrafts.pair

    def per_stream_norm(self, residuals, next_tokens):
        w = self.model.layer(self.layer)
        scale = ops.rms(residuals.reshape(len(residuals), -1), self.model.config.eps)
        weight = w("nextn.hnorm.weight").reshape(residuals.shape[1:])
        change = ops.rms(residuals, self.model.config.eps) * weight - scale.reshape(residuals.shape) * weight
        return right(self, residuals, next_tokens) + ops.linear(change, w("nextn.fc_hidden.weight"))

    def mean_stream(self, residuals, next_tokens):
        return right(self, np.broadcast_to(residuals.mean(axis=1, keepdims=True), residuals.shape), next_tokens)

    def late_token(self, residuals, next_tokens):
        return right(self, residuals, np.roll(next_tokens, 1))

    pairs = (per_stream_norm, mean_stream, late_token)
    return dict(zip(WRONG_PAIRS, pairs, strict=True))[name]


@pytest.mark.parametrize("name", WRONG_PAIRS)
def test_a_wrong_pairing_moves_the_drafts(monkeypatch, name):
    reference = load_reference()
    session = OracleSession(load_oracle())
    session.advance(reference["p0_ids"])
    following = [*reference["p0_ids"][1:].tolist(), int(reference["p0_greedy"][0])]
    assert draft_error(OracleDrafts(session.model), session, following) < STORED_AS_FLOAT32
    monkeypatch.setattr(OracleDrafts, "pair", wrong_pair(name))
    assert draft_error(OracleDrafts(session.model), session, following) > VISIBLE
