"""The suites of drafts and draws catch their own faults; stress on the draft layer changes speed only."""

import itertools

import numpy as np
import pytest

from harness import draft_stress
from harness.arms import Arm
from harness.comparison import compare
from harness.draft_stress import poison_draft_cells
from harness.judging import judge_case
from harness.running import Runner
from harness.suites.table import SUITES
from harness.verdicts import DIFFERS, EXACT
from strata.batch.conversation import Conversation
from strata.batch.settings import EngineSettings
from strata.sampling import sampler
from tests.unit.harness.scopes import scope, shipped, short_prompts

LABELS = ["a", "b", "c"]
DRAFTED = EngineSettings(mtp=True, spec_policy="full")


def outcomes(*stresses: str):
    """(the plain arm's outcome, the drafted one's under stress) on a few conversations."""
    workload = scope(short_prompts(3, 12), max_new=10).workload(3)
    runner = Runner(shipped()[0])
    plain = runner.reference(Arm("plain", EngineSettings(), alone=True), workload)
    return plain, runner.run(Arm("drafted", DRAFTED, stresses=stresses), workload)


@pytest.mark.parametrize("stresses", [("poison",), ("wrong-drafts",), ("wrong-drafts", "poison")])
def test_a_stress_on_the_draft_layer_changes_no_bit(stresses):
    plain, drafted = outcomes(*stresses)
    assert compare(plain.answers, drafted.answers, LABELS).is_exact


def test_wrong_drafts_are_offered_and_rejected():
    sound, wrong = outcomes("poison")[1].counters, outcomes("wrong-drafts")[1].counters
    assert wrong["mtp_accepted"] < sound["mtp_accepted"] and wrong["slot_windows"] > sound["slot_windows"]


def test_poison_over_cells_that_are_read_shows_in_the_acceptance_and_not_in_the_answer(monkeypatch):
    def too_early(drafts, slot, from_position):
        poison_draft_cells(drafts, slot, 0)

    sound = outcomes("poison")[1].counters["mtp_accepted"]
    monkeypatch.setattr(draft_stress, "poison_draft_cells", too_early)
    plain, drafted = outcomes("poison")
    assert compare(plain.answers, drafted.answers, LABELS).is_exact
    assert drafted.counters["mtp_accepted"] < sound // 2


def judged(suite: str, name: str, **options):
    case = next(case for case in SUITES[suite].cases(scope(short_prompts(4, 12), max_new=8, **options)) if case.name == name)
    return judge_case(SUITES[suite], case, Runner(shipped()[0]))


@pytest.mark.parametrize("name", ["slots-4", "mtp", "batch-mtp-4"])
def test_draws_that_count_calls_instead_of_positions_are_caught(monkeypatch, name):
    assert judged("sampled", name).verdict == EXACT
    calls = itertools.count()
    monkeypatch.setattr(sampler, "uniform", lambda seed, position: (next(calls) * 0.6180339887) % 1.0)
    assert judged("sampled", name).verdict == DIFFERS


def test_penalties_whose_history_depends_on_the_run_are_caught(monkeypatch):
    sound, rows = sampler.penalised, itertools.count()
    monkeypatch.setattr(sampler, "penalised", lambda logits, history, keys: sound(logits, history[len(history) - 1 - next(rows) % 12 :], keys))
    case = next(case for case in SUITES["sampled"].cases(scope(short_prompts(7, 12), max_new=20)) if case.name == "mtp")
    assert judge_case(SUITES["sampled"], case, Runner(shipped()[0])).verdict == DIFFERS


@pytest.mark.parametrize(("suite", "name"), [("drafts", "mtp-4"), ("batch-mtp", "slots-2")])
def test_a_draft_accepted_unseen_is_caught(monkeypatch, suite, name):
    take = Conversation.take_window

    def take_last_unseen(self, logits, drafts):
        before = len(self.emitted)
        kept, accepted = take(self, logits, drafts)
        if drafts and accepted == 0 and not self.is_done and len(self.emitted) > before:
            self.text[-1] = drafts[0]
        return kept, accepted

    monkeypatch.setattr(Conversation, "take_window", take_last_unseen)
    assert judged(suite, name).verdict == DIFFERS


@pytest.mark.parametrize(("suite", "name"), [("drafts", "mtp-8"), ("batch-mtp", "slots-3"), ("sampled", "slots-4")])
def test_rows_whose_bits_depend_on_their_company_are_caught(suite, name):
    assert judged(suite, name, rounding="grouped").verdict == DIFFERS


def test_ties_are_everywhere_under_their_stress():
    workload = scope(short_prompts(2, 12), max_new=6).workload(2)
    tied = Runner(shipped()[0]).run(Arm("tied", EngineSettings(), stresses=("ties",)), workload)
    rows = [emitted.row for answer in tied.answers for emitted in answer.emitted]
    assert all(row.best_logit == np.rint(row.best_logit) for row in rows)
    assert any(row.margin == 0 for row in rows)
