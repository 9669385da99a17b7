"""The oracle against the small model's stored reference: logits, residuals, experts, cells, greedy text, drafts."""

from dataclasses import dataclass

import numpy as np
import pytest

from tests.oracle import operations as ops
from tests.oracle.compare import FILE_EPSILON, SAME_STEPS, STORED_AS_FLOAT32, relative_error
from tests.oracle.drafts import OracleDrafts
from tests.oracle.fixture_model import load_oracle, load_oracle_with_epsilon, load_reference
from tests.oracle.model import OracleSession
from tests.oracle.recorder import Recorder

SPARSE_LAYERS = (3, 7, 11)
N_LAYERS = 12
REFERENCE_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Run:
    """One prompt after its last token."""

    prompt: int
    ids: np.ndarray
    logits: np.ndarray
    session: OracleSession
    recorder: Recorder

    def stored(self, name: str) -> np.ndarray:
        """Reference figure `name` of this prompt."""
        return load_reference()[f"p{self.prompt}_{name}"]

    def last(self, name: str, layer: int) -> np.ndarray:
        """Recorded value at the last position."""
        return self.recorder.rows(name, layer)[-1]


def run_prompt(prompt: int, oracle) -> Run:
    """Feed a reference prompt as one window."""
    recorder = Recorder()
    session = OracleSession(oracle, recorder)
    ids = load_reference()[f"p{prompt}_ids"]
    return Run(prompt, ids, session.advance(ids), session, recorder)


@pytest.fixture(scope="module", params=[0, 1, 2], ids=["24 tokens", "200 tokens", "700 tokens"])
def run(request) -> Run:
    return run_prompt(request.param, load_oracle())


def test_logits_of_the_last_eight_positions_are_the_reference(run):
    assert relative_error(run.logits[-8:], run.stored("logits")) < STORED_AS_FLOAT32


def test_the_residual_after_every_layer_is_the_reference(run):
    for layer in range(N_LAYERS):
        assert relative_error(run.last("residual", layer), run.stored("residual")[layer]) < STORED_AS_FLOAT32


def test_experts_of_every_position_and_layer_are_the_reference(run):
    chosen = np.array([run.recorder.rows("router_ids", layer) for layer in range(N_LAYERS)])
    assert np.array_equal(chosen.transpose(1, 0, 2), run.stored("router_all"))
    assert np.array_equal(chosen[:, -1], run.stored("router_ids"))


def test_router_weights_are_the_reference(run):
    weights = [run.last("router_weights", layer) for layer in range(N_LAYERS)]
    assert relative_error(weights, run.stored("router_w")) < STORED_AS_FLOAT32


@pytest.mark.parametrize("index", range(3))
def test_selected_cells_and_their_blocks_are_the_reference(run, index):
    cells = run.last("cells", SPARSE_LAYERS[index])
    assert np.array_equal(cells, run.stored(f"cells_{index}"))
    assert np.array_equal(np.unique(cells // 4), run.stored(f"blocks_{index}"))


@pytest.mark.parametrize("index", range(3))
def test_block_scores_are_the_reference_up_to_the_file_epsilon(run, index):
    scores, stored = run.last("block_scores", SPARSE_LAYERS[index]), run.stored(f"block_scores_{index}")
    assert relative_error(scores, stored) < FILE_EPSILON
    assert np.array_equal(scores == 0, stored == 0)


def test_block_scores_are_the_reference_in_float64_with_its_own_epsilon():
    run = run_prompt(1, load_oracle_with_epsilon(REFERENCE_EPSILON))
    for index, layer in enumerate(SPARSE_LAYERS):
        assert relative_error(run.last("block_scores", layer), run.stored(f"block_scores_{index}")) < SAME_STEPS


def test_greedy_text_and_chained_drafts_are_the_reference(run):
    session, logits = run.session.fork(), run.logits[-1]
    drafts, residuals, following = OracleDrafts(session.model), run.session.residuals, list(run.ids[1:])
    for k in range(64):
        first, second = np.argsort(-logits, kind="stable")[:2]
        assert (first, second) == (run.stored("greedy")[k], run.stored("second")[k])
        assert abs(logits[first] - logits[second] - run.stored("margin")[k]) < STORED_AS_FLOAT32
        drafts.extend(residuals, [*following, first])
        proposals = drafts.propose(3)
        assert [proposal.token for proposal in proposals] == run.stored("drafts")[k].tolist()
        probabilities = [proposal.probability for proposal in proposals]
        assert relative_error(probabilities, run.stored("draft_prob")[k]) < STORED_AS_FLOAT32
        logits = session.step(first)
        residuals, following = session.residuals, []


def test_single_steps_give_what_one_window_gives():
    ids = load_reference()["p0_ids"]
    together, alone = OracleSession(load_oracle()), OracleSession(load_oracle())
    window = together.advance(ids)
    assert relative_error([alone.step(token) for token in ids], window) < SAME_STEPS
    assert alone.position == together.position == len(ids)


def test_uneven_windows_across_the_selection_limit_give_what_one_window_gives():
    ids = load_reference()["p2_ids"][:290]
    whole, parts = OracleSession(load_oracle()), OracleSession(load_oracle())
    expected = whole.advance(ids)
    cuts = (0, 1, 3, 250, 262, 290)
    actual = np.concatenate([parts.advance(ids[a:b]) for a, b in zip(cuts[:-1], cuts[1:], strict=True)])
    assert relative_error(actual, expected) < SAME_STEPS


def test_a_fork_is_not_moved_by_its_origin():
    ids = load_reference()["p0_ids"]
    session, straight = OracleSession(load_oracle()), OracleSession(load_oracle())
    session.advance(ids[:-1])
    branch = session.fork()
    wrong = session.step(int(ids[-1]) + 1)
    expected = straight.advance(ids)[-1]
    assert relative_error(branch.step(ids[-1]), expected) < SAME_STEPS
    assert relative_error(wrong, expected) > STORED_AS_FLOAT32


def test_the_greedy_helper_follows_the_reference():
    run = run_prompt(0, load_oracle())
    assert run.session.greedy(run.logits[-1], 8) == run.stored("greedy")[:8].tolist()
    assert ops.greedy_pick(run.logits[-1:])[0] == run.stored("greedy")[0]
