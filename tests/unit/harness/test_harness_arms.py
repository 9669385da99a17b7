"""Arms say how they run, and in what two of them differ."""

from dataclasses import fields, replace

import pytest

from harness.arms import Arm, Schedule, SettingDifference, difference
from harness.drafts import DraftScript
from strata.batch.settings import EngineSettings

SOLO = Arm("solo", EngineSettings(), alone=True)


def test_an_arm_differs_from_itself_in_nothing_whatever_its_name():
    assert difference(SOLO, replace(SOLO, name="other")) == ()
    assert SOLO.identity == replace(SOLO, name="other").identity


def test_each_setting_in_which_arms_differ_is_named_with_both_values():
    batch = Arm("batch", EngineSettings(batch=4, rounding="grouped"))
    assert difference(SOLO, batch) == (
        SettingDifference("batch", "1", "4"),
        SettingDifference("rounding", "canonical", "grouped"),
        SettingDifference("requests", "each alone in its own engine", "together"),
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(SOLO, alone=False),
        replace(SOLO, schedule=Schedule(arrivals=(0, 3))),
        replace(SOLO, schedule=Schedule(order=(1, 0))),
        replace(SOLO, drafts=DraftScript(4, "mixed")),
        replace(SOLO, stresses=("poison",)),
    ],
)
def test_what_is_not_an_engine_setting_counts_too(other):
    assert len(difference(SOLO, other)) == 1
    assert SOLO.identity != other.identity


def test_every_engine_setting_is_among_those_requested():
    assert {item.name for item in fields(EngineSettings)} <= set(SOLO.requested())


def test_settings_in_force_are_compared_by_name_and_a_missing_one_shows():
    assert difference({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == (
        SettingDifference("b", "2", "-"),
        SettingDifference("c", "-", "3"),
    )
