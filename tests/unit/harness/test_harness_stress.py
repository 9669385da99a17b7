"""Stresses reach the executors and change no bit; poison shows whoever reads a cell that he should not."""

import numpy as np
import pytest

from harness import stress
from harness.arms import Arm
from harness.comparison import compare
from harness.drafts import DraftScript
from harness.running import Runner
from harness.stress import poison_cells, put_stress
from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings
from strata.errors import UsageError
from strata.host.state import QsaState
from tests.unit.harness.scopes import scope, shipped, short_prompts

PLAIN = Arm("plain", EngineSettings(), alone=True)


def drafted(*stresses: str) -> Arm:
    """An arm with drafts of every accepted count."""
    return Arm("drafted", EngineSettings(batch=2), drafts=DraftScript(4, "cycle"), stresses=stresses)


def answers_of(arm: Arm):
    """(reference answers, the arm's) on a few conversations."""
    workload = scope(short_prompts(3), max_new=8).workload(3)
    runner = Runner(shipped()[0])
    reference = runner.reference(PLAIN, workload)
    return reference.answers, runner.run(arm, workload, reference.answers).answers


@pytest.mark.parametrize("stresses", [("poison",), ("jitter",), ("poison", "jitter")])
def test_a_stress_changes_no_bit(stresses):
    left, right = answers_of(drafted(*stresses))
    assert compare(left, right, ["a", "b", "c"]).is_exact


def test_poison_one_cell_too_early_is_noticed(monkeypatch):
    def too_early(executor, slot, from_position):
        poison_cells(executor, slot, max(0, from_position - 1))

    monkeypatch.setattr(stress, "poison_cells", too_early)
    left, right = answers_of(drafted("poison"))
    assert not compare(left, right, ["a", "b", "c"]).is_exact


class Replaying:
    """An executor on a card, or what a stress sees of it."""

    def __init__(self, output) -> None:
        self.placed = type("Placed", (), {"output": output})

    def run_window(self, window, residual, blocks):
        return np.float32([0.4, 1.6])


def test_ties_round_the_logits_of_a_card_and_leave_rows_that_are_handed_on():
    assert stress.TiedLogits(Replaying("head")).run_window(None, None, None).tolist() == [0, 2]
    assert stress.TiedLogits(Replaying(None)).run_window(None, None, None).tolist() == [np.float32(0.4), np.float32(1.6)]


def test_poison_fills_the_cells_from_a_position_on_and_no_others():
    with Engine(shipped()[0], EngineSettings(context=64, batch=2)) as engine:
        (stage,) = engine.stages
        poison_cells(stage.executor, 1, 12)
        states = [state for state in stage.executor.state.values() if isinstance(state, QsaState)]
        assert len(states) == len(shipped()[0].config.qsa_layers)
        for state in states:
            keys = state.k_codes.view(np.float16)
            assert np.isnan(keys[1, 12:]).all()
            assert not np.isnan(keys[1, :12]).any()
            assert not np.isnan(keys[0]).any()


def test_a_stress_passes_everything_else_through():
    with Engine(shipped()[0], EngineSettings(context=64)) as engine:
        (stage,) = engine.stages
        inner = stage.executor
        put_stress(("poison", "jitter"), engine.stages)
        assert stage.executor.state is inner.state
        stage.executor.observe = marker = object()
        assert inner.observe is marker


def test_an_unknown_stress_is_refused():
    with pytest.raises(UsageError, match="stress=heat"):
        put_stress(("heat",), ())
