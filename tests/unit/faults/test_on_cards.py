"""Faults that can be planted on a card, and what their right arms are opened with."""

import pytest

from harness.faults.catalogue.cards import control_on, moved, planted_on
from harness.faults.catalogue.table import chosen
from harness.faults.fault import CONTROL, ONE
from strata.batch.settings import EngineSettings
from strata.errors import UsageError


def test_every_stage_of_a_right_arm_is_moved():
    settings = control_on("cuda:0").settings
    assert settings(EngineSettings()).devices == "cuda:0"
    assert settings(EngineSettings(devices="host,host:256m", layer_split=(6,))).devices == "cuda:0,cuda:0"
    assert control_on("cuda:1").reach == ONE and CONTROL.settings(EngineSettings()).devices == "host"


def test_only_faults_at_points_that_cards_show_are_left():
    names = [fault.name for fault in planted_on("cuda:0", chosen((), ()))]
    assert {"ulp-gdn.scan", "ulp-moe.ids", "ulp-logits", "ulp-hand_off"} <= set(names)
    assert all(name.startswith("ulp-") and not name.startswith("ulp-all-") for name in names)
    assert not {"ulp-qsa.keys", "ulp-qsa.attended"} & set(names)
    assert all(fault.reach == ONE for fault in planted_on("cuda:0", chosen((), ())))


def test_a_fault_keeps_its_own_settings_when_it_moves():
    (fault,) = chosen(("ulp-gdn.scan",), ())
    assert moved(fault, "cuda:0").plant is fault.plant


@pytest.mark.parametrize(("device", "names"), [("host", ()), ("cuda:0,cuda:1", ()), ("cuda:0", ("ulp-qsa.keys",)), ("cuda:0", ("control",))])
def test_what_cannot_be_planted_is_refused(device, names):
    with pytest.raises(UsageError, match="devices="):
        planted_on(device, chosen(names, ()))
