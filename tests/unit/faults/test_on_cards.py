"""Faults that can be planted on a card, and what their right arms are opened with."""

import pytest

from harness.faults.catalogue import card_tiers
from harness.faults.catalogue.cards import TIERED, control_on, moved, planted_on
from harness.faults.catalogue.table import catalogue, chosen
from harness.faults.checks.table import all_checks
from harness.faults.fault import CONTROL, ONE
from strata.batch.settings import EngineSettings
from strata.errors import UsageError
from tests.unit.faults.bench import bench


def test_every_stage_of_a_right_arm_is_moved():
    settings = control_on("cuda:0").settings
    assert settings(EngineSettings()).devices == "cuda:0"
    assert settings(EngineSettings(devices="host,host:256m", layer_split=(6,))).devices == "cuda:0,cuda:0"
    assert control_on("cuda:1").reach == ONE and CONTROL.settings(EngineSettings()).devices == "host"


def test_only_faults_at_points_that_cards_show_are_left():
    names = [fault.name for fault in planted_on("cuda:0", chosen((), ())) if "tier-" not in fault.name]
    assert {"ulp-gdn.scan", "ulp-moe.ids", "ulp-logits", "ulp-hand_off"} <= set(names)
    assert all(name.startswith("ulp-") and not name.startswith("ulp-all-") for name in names)
    assert not {"ulp-qsa.keys", "ulp-qsa.attended"} & set(names)
    assert all(fault.reach == ONE for fault in planted_on("cuda:0", chosen((), ())))


def test_the_tiers_faults_are_planted_on_a_card_and_name_checks_that_exist():
    own, checks = {fault.name: fault for fault in card_tiers.faults()}, all_checks(bench())
    assert set(own) <= {fault.name for fault in planted_on("cuda:0", chosen((), (), is_card=True))}
    assert TIERED <= {fault.name for fault in planted_on("cuda:0", chosen((), ()))} and not set(own) & set(catalogue())
    assert [(name, check) for name, fault in own.items() for check in fault.seen_by if check not in checks] == []
    assert len(own) >= 10 and all(fault.words and not fault.survives for fault in own.values())


def test_a_card_that_fetches_has_copies_in_ram():
    settings = control_on("cuda:0").settings
    assert settings(EngineSettings(expert_cache=5, pcie_frac=0.5)).arena_pin_gib == 0.0
    assert settings(EngineSettings(expert_cache=5, pcie_frac=0.0)).arena_pin_gib is None
    assert settings(EngineSettings(expert_cache=5, resident_experts=True)).arena_pin_gib is None
    assert settings(EngineSettings()).arena_pin_gib is None


def test_a_fault_keeps_its_own_settings_when_it_moves():
    (fault,) = chosen(("ulp-gdn.scan",), ())
    assert moved(fault, "cuda:0").plant is fault.plant


@pytest.mark.parametrize(("device", "names"), [("host", ()), ("cuda:0,cuda:1", ()), ("cuda:0", ("ulp-qsa.keys",)), ("cuda:0", ("control",))])
def test_what_cannot_be_planted_is_refused(device, names):
    with pytest.raises(UsageError, match="devices="):
        planted_on(device, chosen(names, ()))
