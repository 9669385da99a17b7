"""Arms run as they say: alone or together, late, in another order; outcomes of reference arms are kept."""

from dataclasses import replace

import pytest

from harness.arms import Arm, Schedule
from harness.comparison import compare
from harness.drafts import DraftScript
from harness.running import Runner
from harness.workload import Workload
from strata.batch.settings import EngineSettings
from strata.errors import RequestError, UsageError
from tests.unit.harness.plants import LastPlace
from tests.unit.harness.scopes import scope, shipped, short_prompts

SOLO = Arm("solo", EngineSettings(), alone=True)
PAIR = Arm("pair", EngineSettings(batch=2))


def work(n: int = 3, max_new: int = 3) -> Workload:
    """n short conversations."""
    return scope(short_prompts(n), max_new=max_new).workload(n)


@pytest.fixture
def runner():
    return Runner(shipped()[0])


def labels(workload):
    return [item.label for item in workload.items]


def test_alone_and_together_give_equal_answers_in_the_workloads_order(runner):
    workload = work()
    solo, pair = runner.reference(SOLO, workload), runner.run(PAIR, workload)
    assert compare(solo.answers, pair.answers, labels(workload)).is_exact
    assert [len(answer.tokens) for answer in pair.answers] == [3, 3, 3]


def test_alone_nobody_has_company_and_counters_are_summed(runner):
    solo = runner.run(SOLO, work())
    assert (solo.counters["admissions"], solo.counters["windows_with_company"]) == (3, 0)


def test_another_order_admits_in_that_order_and_answers_in_the_workloads(runner):
    workload = work()
    turned = runner.run(replace(PAIR, schedule=Schedule(order=(2, 0, 1))), workload)
    assert compare(runner.reference(SOLO, workload).answers, turned.answers, labels(workload)).is_exact


def test_arrivals_follow_the_queue_and_not_the_workload(runner):
    requests = runner.requests(replace(PAIR, schedule=Schedule(arrivals=(0, 4, 9), order=(2, 0, 1))), work())
    assert [request.arrive_after for request in requests] == [4, 9, 0]


def test_an_order_that_is_no_permutation_is_refused(runner):
    with pytest.raises(UsageError, match="order="):
        runner.run(replace(PAIR, schedule=Schedule(order=(0, 0, 1))), work())


def test_scripted_drafts_come_from_the_reference_answers(runner):
    workload = work(max_new=6)
    solo = runner.reference(SOLO, workload)
    drafted = runner.run(replace(PAIR, drafts=DraftScript(4, "right")), workload, solo.answers)
    assert drafted.counters["drafts_accepted"] == drafted.counters["drafts_offered"] > 0
    with pytest.raises(UsageError, match="reference answer"):
        runner.run(replace(PAIR, drafts=DraftScript(4, "right")), workload)


def test_settings_in_force_and_the_manner_of_running_are_reported(runner):
    outcome = runner.run(PAIR, work())
    assert outcome.effective["batch"] == "2"
    assert outcome.effective["requests"] == "together"


def test_the_outcome_of_a_reference_arm_is_kept_request_by_request_when_alone():
    probes = []
    runner = Runner(shipped()[0], lambda arm: probes.append(arm.name))
    runner.reference(SOLO, work(2))
    runner.reference(replace(SOLO, name="the same"), work(3))
    assert probes == ["solo", "solo", "the same"]


def test_the_outcome_of_a_reference_arm_is_kept_whole_when_together():
    probes = []
    runner = Runner(shipped()[0], lambda arm: probes.append(arm.name))
    runner.reference(PAIR, work(2))
    runner.reference(PAIR, work(2))
    runner.reference(PAIR, work(3))
    assert len(probes) == 2


def test_a_kept_outcome_serves_an_arm_on_the_other_side_too():
    probes = []
    runner = Runner(shipped()[0], lambda arm: probes.append(arm.name))
    kept = runner.reference(PAIR, work(2))
    assert runner.run_or_kept(replace(PAIR, name="other side"), work(2)) is kept
    runner.run_or_kept(PAIR, work(3))
    runner.run_or_kept(replace(PAIR, stresses=("poison",)), work(2))
    assert probes == ["pair", "pair", "pair"]


def test_an_arm_that_is_no_reference_runs_each_time():
    probes = []
    runner = Runner(shipped()[0], lambda arm: probes.append(arm.name))
    runner.run(PAIR, work(2))
    runner.run(PAIR, work(2))
    assert len(probes) == 2


def test_a_probe_reaches_the_arm_that_it_is_made_for_and_no_other():
    plant = LastPlace("logits", -1)
    runner = Runner(shipped()[0], lambda arm: plant if arm.name == "pair" else None)
    workload = work()
    solo, pair = runner.reference(SOLO, workload), runner.run(PAIR, workload)
    assert plant.hits > 0
    assert not compare(solo.answers, pair.answers, labels(workload)).is_exact


def test_what_cannot_run_is_refused_before_anything_runs(runner):
    workload = work(1, max_new=5000)
    with pytest.raises(RequestError, match="max_new=5000"):
        runner.check(SOLO, workload)
    with pytest.raises(UsageError, match="layer_split=99"):
        runner.check(Arm("split", EngineSettings(layer_split=(99,), devices="host,host")), work(1))
