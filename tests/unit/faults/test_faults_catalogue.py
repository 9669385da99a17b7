"""The catalogue is wide enough, says of each fault what it is, and names only checks that exist."""

import json
from collections import Counter
from pathlib import Path

import pytest

from harness.faults.catalogue.table import ROOMS, catalogue, chosen, kinds, sample
from harness.faults.checks.table import all_checks
from harness.faults.fault import ALL, CONTROL, REACHES
from harness.ledger.points import POINTS, TOKENS
from strata.errors import UsageError
from tests.unit.faults.bench import bench

FAULTS = catalogue()
DOCUMENT = Path(__file__).parents[3] / "docs" / "FAULTS.md"
EVIDENCE = DOCUMENT.parent / "evidence" / "mutate.json"
LATER = {"cancel", "stale kernel", "contraction"}
"""Kinds of the document whose feature is not there yet, or which are no fault of a running engine."""


def documented() -> set[str]:
    """Kinds in the table of docs/FAULTS.md."""
    table = DOCUMENT.read_text(encoding="utf-8").partition("## Planting")[0]
    return {line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")} - {"kind"}


def survivors_section() -> str:
    """The part of docs/FAULTS.md about survivors."""
    return DOCUMENT.read_text(encoding="utf-8").partition("## Survivors")[2]


def test_there_are_at_least_a_hundred_faults_and_three_of_each_kind():
    assert len(FAULTS) >= 100
    assert {kind: n for kind, n in Counter(fault.kind for fault in FAULTS.values()).items() if n < 3} == {}


def test_no_two_faults_are_the_same():
    found = [fault for room in ROOMS for fault in room.faults()]
    assert len({fault.name for fault in found}) == len(found)
    assert len({(fault.kind, fault.site, fault.words) for fault in found}) == len(found)


def test_every_kind_of_the_document_whose_feature_exists_is_planted():
    assert documented() - LATER == set(kinds(FAULTS.values())) - {"arithmetic"}


def test_every_operation_and_state_is_hit_by_one_unit_in_the_last_place():
    missing = [name for name in POINTS if f"ulp-{name}" not in FAULTS]
    assert missing == [TOKENS, "gdn.memory.after"], "what is shown as a hash cannot be hit"


def test_every_fault_names_checks_that_exist_and_may_convict_it():
    checks = all_checks(bench())
    unknown = [(fault.name, name) for fault in FAULTS.values() for name in fault.seen_by if name not in checks]
    unfit = [(f.name, name) for f in FAULTS.values() for name in f.seen_by if f.reach != ALL and not checks[name].compares_arms]
    assert (unknown, unfit) == ([], [])
    assert [fault.name for fault in FAULTS.values() if not fault.seen_by or fault.reach not in REACHES or not fault.words] == []


def test_every_explained_survivor_stands_in_the_document():
    explained = {fault.name: fault for fault in FAULTS.values() if fault.survives}
    assert explained
    for name, fault in explained.items():
        assert f"`{name}`" in survivors_section() and len(fault.survives) > 40
    listed = {word.strip("`") for word in survivors_section().split() if word.startswith("`") and word.strip("`,.:;") in FAULTS}
    assert {name.strip("`,.:;") for name in listed} == set(explained)


def test_faults_are_chosen_by_name_and_kind():
    assert [fault.name for fault in chosen(["ulp-logits"], [])] == ["ulp-logits"]
    assert {fault.kind for fault in chosen([], ["width"])} == {"width"}
    assert chosen(["control"], []) == [CONTROL]
    assert [fault.name for fault in chosen([], [])] == list(FAULTS)


@pytest.mark.parametrize(("names", "of_kinds"), [(["ulp-nothing"], []), ([], ["nothing"])])
def test_an_unknown_name_or_kind_is_refused(names, of_kinds):
    with pytest.raises(UsageError, match="nothing"):
        chosen(names, of_kinds)


def test_a_sample_takes_the_kinds_in_turn_and_is_the_seeds():
    faults = list(FAULTS.values())
    drawn = sample(faults, 12, 1)
    assert len({fault.kind for fault in drawn}) == 12
    assert drawn == sample(faults, 12, 1) != sample(faults, 12, 2)
    assert not any(fault.survives for fault in sample(faults, len(faults), 1))
    assert len(sample(faults, 1000, 1)) == sum(not fault.survives for fault in faults)


def test_the_evidence_in_the_documents_is_of_this_catalogue():
    document = json.loads(EVIDENCE.read_text(encoding="utf-8"))
    assert {fault["name"] for fault in document["faults"]} == set(FAULTS), "write it again: strata-harness mutate --json docs/evidence/mutate.json"
    assert document["share"] >= 0.95 and document["exit_code"] == 0
    assert set(document["survivors"]) == {fault.name for fault in FAULTS.values() if fault.survives}
