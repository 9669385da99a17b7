"""A trial convicts by fair means only: arms against arms, trusted checks, in time; and the score says what it counted."""

import time

import pytest

from harness.faults import trial
from harness.faults.catalogue.table import catalogue
from harness.faults.checks.contract import Check
from harness.faults.fault import ALL, CONTROL, ONE, SOME, Fault
from harness.faults.finding import COMPARISON, ERROR, GOLDEN, VACUOUS, Finding
from harness.faults.score import exit_code, score_of
from harness.faults.trial import Trial, UntrustedCheck, try_fault
from strata.errors import UsageError
from tests.unit.faults.bench import bench

WRONG = Finding(COMPARISON, "it differs")


class Shelf:
    """A bench with nothing on it but what the control found."""

    def __init__(self) -> None:
        self.control, self.without_fault = {}, CONTROL


def fault(name="some", seen_by=("arms",), reach=SOME, survives=""):
    return Fault(name, "kind", "site", "words", seen_by, reach=reach, survives=survives)


def convicting(name, compares_arms=True, finding=WRONG):
    """A check that convicts everything but the control."""
    return Check(name, compares_arms, lambda bench, tried: Finding() if tried is CONTROL else finding)


@pytest.fixture
def shelf(monkeypatch):
    """Return put(checks): the checks that trials know."""

    def put(*checks):
        monkeypatch.setattr(trial, "all_checks", lambda bench: {check.name: check for check in checks})
        monkeypatch.setattr(trial, "wide_checks", lambda bench, names: iter(()))
        return Shelf()

    return put


def test_the_control_survives_checks_of_every_sort():
    for name in ("batch/slots-2", "ledger batch/slots-2", "golden", "oracle", "contained/slots-2", "observed/slots-2", "proposals/chunks"):
        found = trial._tried(trial.all_checks(bench())[name], bench(), CONTROL)
        assert not found.evidence, name


@pytest.mark.parametrize("name", ["ulp-gdn.z", "off-slots", "resolved-wide", "stage-count", "seed-slot", "draft-ids-shifted"])
def test_a_fault_of_each_evidence_is_killed_by_its_own_checks(name):
    found = try_fault(catalogue()[name], bench(), most_rings=1)
    assert found.is_killed and found.ring == "own"


@pytest.mark.parametrize(("reach", "killed"), [(SOME, False), (ONE, False), (ALL, True)])
def test_only_what_hits_all_arms_alike_is_convicted_by_a_golden_record(shelf, reach, killed):
    clean = Check("arms", True, lambda bench, tried: Finding())
    found = try_fault(fault(reach=reach), shelf(clean, convicting("golden", False, Finding(GOLDEN, "x"))))
    assert found.is_killed == killed


def test_a_check_that_convicts_the_control_is_not_trusted(shelf):
    liar = Check("arms", True, lambda bench, tried: WRONG)
    with pytest.raises(UntrustedCheck, match="check arms"):
        try_fault(fault(), shelf(liar))
    assert try_fault(CONTROL, shelf(liar)).is_killed


def test_another_check_whose_workload_is_too_small_has_nothing_to_say(shelf):
    clean = Check("arms", True, lambda bench, tried: Finding())
    small = Check("small", True, lambda bench, tried: Finding(VACUOUS, "nothing happened"))
    assert not try_fault(fault(), shelf(clean, small)).is_killed
    assert not try_fault(CONTROL, shelf(clean, small)).is_killed
    with pytest.raises(UntrustedCheck):
        try_fault(fault(seen_by=("small",)), shelf(clean, small))


def test_a_run_that_hangs_is_ended_and_counts_as_an_error(shelf, monkeypatch):
    monkeypatch.setattr(trial, "PATIENCE_SECONDS", 0.2)
    hanging = Check("arms", True, lambda bench, tried: Finding() if tried is CONTROL else time.sleep(30))
    found = try_fault(fault(), shelf(hanging))
    assert found.finding.evidence == ERROR and found.seconds < 10


def test_a_fault_that_names_an_unknown_check_is_refused(shelf):
    with pytest.raises(UsageError, match="no check elsewhere"):
        try_fault(fault(seen_by=("elsewhere",)), shelf(convicting("arms")))


def of(tried, evidence=""):
    return Trial(tried, "arms", Finding(evidence), "own", 1, 0.5)


def test_a_score_counts_faults_and_not_the_control():
    score = score_of([of(CONTROL), of(fault("a"), COMPARISON), of(fault("b"), ERROR)])
    assert (len(score.trials), score.n_killed, score.share, score.by_evidence()) == (2, 2, 1.0, {COMPARISON: 1, ERROR: 1})


def test_a_campaign_is_good_with_enough_killed_and_every_survivor_explained():
    killed = [of(fault(f"f{i}"), COMPARISON) for i in range(19)]
    explained, unexplained = of(fault("x", survives="it cannot be seen")), of(fault("y"))
    assert exit_code([*killed, explained]) == 0
    assert exit_code([*killed, unexplained]) == 1
    assert exit_code([*killed[:18], explained, explained]) == 1, "less than 95 %"
    assert exit_code([of(CONTROL, COMPARISON), *killed]) == 1, "the control was convicted"
    assert exit_code([of(CONTROL), *killed]) == 0
