"""`strata plan`: its figures are those that opening an engine takes, and a budget too small is refused."""

import json

from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings
from strata.cli.engine_flags import FIXTURE
from strata.model.model import load_model
from tests.cli.calls import strata

SPLIT = ("--devices", "host:64m,host:32m", "--layer-split", "5", "--batch", "4", "--context", "512")


def planned(*flags):
    return json.loads(strata("plan", "--json", *flags).out)


def test_the_plan_is_what_an_engine_takes():
    settings = EngineSettings(devices="host:64m,host:32m", layer_split=(5,), batch=4, context=512)
    with Engine(load_model(FIXTURE), settings) as engine:
        taken = [dict(stage.executor.device.taken) for stage in engine.stages]
    assert [device["purposes"] for device in planned(*SPLIT)["devices"]] == taken


def test_the_budget_stands_beside_what_is_taken():
    first, second = planned(*SPLIT)["devices"]
    assert (first["budget_bytes"], second["budget_bytes"]) == (64 << 20, 32 << 20)
    assert first["taken_bytes"] == sum(first["purposes"].values())


def test_more_slots_take_more():
    few, many = (planned("--batch", n)["devices"][0]["taken_bytes"] for n in (1, 4))
    assert many > few


def test_stages_on_one_device_share_its_budget():
    devices = planned("--layer-split", "6", "--split-device", "0")["devices"]
    assert len(devices) == 1 and len(devices[0]["purposes"]) == 4


def test_a_budget_too_small_is_shown_and_refused_as_running_would_refuse_it():
    outcome = strata("plan", "--devices", "host:1m")
    assert outcome.code == 2 and "host[0]: " in outcome.out
    assert outcome.err == strata("run", "--prompt", "a", "--devices", "host:1m").err


def test_the_plan_for_people_names_stages_and_purposes():
    out = strata("plan", *SPLIT).out
    assert "0-4@0 5-11@1" in out and "weights of layers 5-11" in out and "MiB of 32.0 MiB" in out
