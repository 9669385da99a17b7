"""What a tier's settings become: sizes, reserves, notes, refusals; profiles saved and restored; the log line."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest

from harness.locate.arm_words import parse_arm
from strata.batch.settings import EngineSettings, resolve
from strata.batch.tier_line import served_share, tier_line
from strata.errors import DeviceMemoryError, ModelFileError, RequestError, UsageError
from strata.host.chunk_buffers import ChunkLayout
from strata.model.profile_file import read_profile, write_profile
from strata.numerics.rounding import mode_in_force
from strata.split.budget import check_budgets, device_bytes
from tests.unit.harness.scopes import shipped
from tests.unit.tiers.opened import PROFILE, answered, open_engine, requests

MIB = 1 << 20
ALL = 768


def resolved(**settings):
    return resolve(EngineSettings(context=128, **settings), shipped()[0].config, 2)


def tiers_of(**settings):
    """(slots, experts held, PCIe share in 256ths, bytes taken) per device."""
    with open_engine(**settings) as engine:
        return [
            (tier.residency.n_slots, tier.residency.n_held, tier.share, stage.executor.device.taken_bytes)
            for tier, stage in zip(engine.tiers.devices, engine.stages, strict=True)
        ]


# ---- sizes


def test_without_a_cache_every_expert_is_placed_and_there_is_no_tier():
    with open_engine() as engine:
        assert engine.tiers.devices == () and engine.stages[0].executor.tier is None
    assert resolved().described()["expert_cache"] == "all resident"


def test_a_cache_takes_its_slots_and_the_other_experts_take_nothing():
    model = shipped()[0]
    (slots, held, share, taken), = tiers_of(expert_cache=100, pcie_frac=0.0)
    everything, = device_bytes(model, resolved())
    routed = sum(layer.moe.gate.raw.size + layer.moe.up.raw.size + layer.moe.down.raw.size for layer in model.weights.layers)
    assert (slots, held, share) == (100, 100, 0)
    assert taken == everything.total - routed + 100 * 35840 + ChunkLayout(model.config, True).bytes(2048)


def test_auto_fills_the_budget_beside_ring_and_reserve():
    (slots, held, _, taken), = tiers_of(devices="host:30m", expert_cache=0)
    assert slots == held and 30 * MIB - 35840 < taken <= 30 * MIB
    (fewer, _, _, kept), = tiers_of(devices="host:30m", expert_cache=0, vram_reserve_mib=3)
    assert 27 * MIB - 35840 < kept <= 27 * MIB and fewer < slots


def test_later_devices_have_a_reserve_of_their_own():
    split = {"devices": "host:22m,host:22m", "layer_split": (6,), "expert_cache": 0, "vram_reserve_mib": 1, "vram_reserve_later_mib": 4}
    first, later = tiers_of(**split)
    assert 21 * MIB - 35840 < first[3] <= 21 * MIB and 18 * MIB - 35840 < later[3] <= 18 * MIB


def test_auto_without_a_limit_holds_everything_and_a_number_is_cut_to_what_there_is():
    assert tiers_of(expert_cache=0)[0][:3] == (ALL, ALL, 0)
    assert tiers_of(expert_cache=10**6)[0][:2] == (ALL, ALL)


def test_the_plan_says_what_the_engine_takes():
    settings = {"devices": "host:30m", "expert_cache": 0}
    planned, = device_bytes(shipped()[0], resolved(**settings))
    assert planned.total == tiers_of(**settings)[0][3]
    check_budgets((planned,))


@pytest.mark.parametrize("cache", [0, 2000])
def test_a_budget_without_room_is_an_error_that_names_the_cache(cache):
    with pytest.raises(DeviceMemoryError, match="expert cache"), open_engine(devices="host:17m", expert_cache=cache):
        pass


def test_each_device_of_a_split_holds_its_own_layers():
    with open_engine(devices="host,host", layer_split=(4,), expert_cache=100, pcie_frac=0.0) as engine:
        layers = [sorted(set(tier.residency.held[:, 0].tolist())) for tier in engine.tiers.devices]
    assert layers == [[0, 1, 2, 3], list(range(4, 12))]


def test_the_share_is_given_or_probed():
    assert tiers_of(expert_cache=50, pcie_frac=0.55)[0][2] == 141
    assert 0 < tiers_of(expert_cache=50)[0][2] < 256


# ---- notes and refusals

SPLIT = {"devices": "host,host", "layer_split": (6,), "batch": 4}


@pytest.mark.parametrize(
    ("settings", "adaptive", "said"),
    [
        ({}, "blocking", ""),
        ({"batch": 4}, "blocking", ""),
        (SPLIT, "blocking", ""),
        ({**SPLIT, "batch_groups": 2}, "off", "groups do not adapt"),
        ({**SPLIT, "batch_groups": 0}, "off", "groups do not adapt"),
        ({**SPLIT, "batch_groups": 2, "adapt_async": True}, "off", "adapt_async and the adaptive tier are off"),
        ({**SPLIT, "batch_groups": 0, "adapt_async": True}, "off", "adapt_async and the adaptive tier are off"),
        ({**SPLIT, "split_device": (0,), "batch_groups": 0}, "blocking", "one group"),
        ({"adapt_async": True}, "blocking", "runs as blocking rounds"),
        ({**SPLIT, "adapt_async": True}, "blocking", "runs as blocking rounds"),
        ({"adapt_async": True, "mmap_experts": True}, "blocking", "runs as blocking rounds"),
        ({"adapt_async": True, "resident_experts": True}, "async", ""),
        ({"adapt_async": True, "arena_pin_gib": 0.0}, "async", ""),
        ({**SPLIT, "adapt_async": True, "resident_experts": True}, "async", ""),
        ({**SPLIT, "batch_groups": 2, "adapt_async": True, "resident_experts": True}, "off", "adapt_async and the adaptive tier are off"),
        ({"adapt_every": 0}, "off", ""),
        ({"adapt_swaps": 0}, "off", ""),
    ],
    ids=str,
)
def test_what_runs_is_said(settings, adaptive, said):
    found = resolved(expert_cache=100, **settings)
    assert found.described()["adaptive"].partition(",")[0] == adaptive
    assert (said in " ".join(found.notes)) if said else found.notes == ()


@pytest.mark.parametrize("name", ["adapt_async", "resident_experts"])
def test_what_needs_a_cache_is_said_to_do_nothing_without(name):
    assert f"{name} does nothing" in " ".join(resolved(**{name: True}).notes)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"mmap_experts": True, "resident_experts": True}, "mmap_experts"),
        ({"mmap_experts": True, "arena_pin_gib": 1.0}, "mmap_experts"),
        ({"resident_experts": True, "arena_pin_gib": 1.0}, "arena_pin_gib"),
        ({"resident_budget_gib": 1.0}, "resident_budget_gib"),
        ({"resident_experts": True, "resident_budget_gib": -1.0}, "resident_budget_gib"),
    ],
    ids=str,
)
def test_ways_of_reading_experts_that_contradict_each_other_are_refused(settings, named):
    with pytest.raises(UsageError, match=named):
        resolved(expert_cache=10, **settings)


@pytest.mark.parametrize(
    ("settings", "mode"), [({}, "mapped"), ({"mmap_experts": True}, "mapped"), ({"resident_experts": True}, "resident"), ({"arena_pin_gib": 0.0}, "pinned")], ids=str
)
def test_experts_are_read_from_where_it_was_said(settings, mode):
    with open_engine(expert_cache=100, pcie_frac=0.0, devices="host,host", layer_split=(5,), **settings) as engine:
        arenas = {id(tier.arena): tier.arena for tier in engine.tiers.devices}
        assert [arena.mode for arena in arenas.values()] == [mode]
    assert resolved(expert_cache=100, **settings).described()["experts_in_ram"] == mode


@pytest.mark.parametrize(
    "settings",
    [{"pcie_frac": 1.5}, {"pcie_frac": -0.1}, {"adapt_every": -1}, {"adapt_swaps": -1}, {"adapt_decay": 1.1}, {"adapt_min_gain": -1.0}, {"expert_cache": -5}, {"vram_reserve_mib": -1}],
    ids=str,
)
def test_values_that_make_no_sense_are_refused_by_name(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        resolved(**settings)


@pytest.mark.parametrize(
    ("name", "environment", "expected"),
    [("grouped", {}, "grouped"), ("grouped", {"STRATA_IQ_MT_MIN": "1"}, "device"), ("canonical", {"STRATA_IQ_MT_MIN": "1"}, "canonical"), ("grouped", {"STRATA_IQ_MT_MIN": "2"}, "grouped")],
)
def test_the_variable_turns_grouped_into_device(name, environment, expected):
    assert mode_in_force(name, environment) == expected


def test_another_value_of_the_variable_is_refused():
    with pytest.raises(UsageError, match="STRATA_IQ_MT_MIN=3"):
        mode_in_force("canonical", {"STRATA_IQ_MT_MIN": "3"})


def test_arms_in_words_take_the_tiers_settings():
    arm = parse_arm("left", "expert_cache=auto pcie_frac=0.5 vram_reserve_mib=3 adapt_async=yes", EngineSettings())
    assert arm.settings == EngineSettings(expert_cache=0, pcie_frac=0.5, vram_reserve_mib=3, adapt_async=True)
    with pytest.raises(UsageError, match="expert_cache"):
        parse_arm("left", "expert_cache=some", EngineSettings())


# ---- profiles


@pytest.mark.parametrize("name", ["own.json", "own.bin"])
def test_a_profile_of_what_was_routed_fills_the_next_cache(tmp_path, name):
    path = str(tmp_path / name)
    saved, _, _ = answered(expert_profile_save=path)
    profile = read_profile(path, shipped()[0].config)
    with open_engine(expert_cache=200, expert_profile=path, pcie_frac=0.0, adapt_every=0) as engine:
        assert engine.tiers.devices[0].residency.held.tolist() == profile.pairs[:200].tolist()
        restored = engine.generate(requests())
    cold, counters, _ = answered(expert_cache=200, expert_profile=str(PROFILE), pcie_frac=0.0, adapt_every=0)
    assert cold == saved == [[e.row.digest for e in answer.emitted] for answer in restored.answers]
    assert restored.counters["vram_entries"] > counters["vram_entries"], "what these prompts route to is a better guess than the shipped profile"


def test_a_profile_counts_every_routed_entry(tmp_path):
    path = tmp_path / "own.json"
    with open_engine(expert_profile_save=str(path)) as engine:
        engine.generate(requests(max_new=5, n=1))
        total = int(engine.tiers.counts.sum())
    document = json.loads(path.read_text())
    assert total == 12 * 6 * (20 + 4) and sum(document["share"]) == pytest.approx(1)
    assert (document["layers"], document["experts"]) == (12, 64)


def test_a_profile_that_cannot_be_written_is_an_error(tmp_path):
    config = shipped()[0].config
    with pytest.raises(ModelFileError, match="cannot be written"):
        write_profile(tmp_path / "no" / "own.json", np.zeros((1, 2), np.int32), np.ones(1), config)


def test_a_profile_of_another_model_is_refused_before_anything_is_loaded(tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"layers": 48, "experts": 512, "pairs": [[40, 300]]}))
    with pytest.raises(ModelFileError, match="this model has"), open_engine(expert_cache=10, expert_profile=str(path)):
        pass


def test_no_profile_starts_empty():
    assert tiers_of(expert_cache=10, expert_profile="none", pcie_frac=0.0)[0][:2] == (10, 0)


# ---- the log line


def test_a_run_with_a_tier_says_what_served_it(caplog):
    with caplog.at_level(logging.INFO, "strata.batch.run"), open_engine(expert_cache=384, pcie_frac=0.5, batch=3) as engine:
        counters = engine.generate(requests()).counters
    line = next(record.message for record in caplog.records if record.message.startswith("strata batch:"))
    assert "3.00 rows" in line and "adapt wait" in line and "host[0] reach" in line
    assert sum(served_share(counters, place) for place in ("vram", "pcie", "cpu")) == pytest.approx(1)
    assert sum(counters[f"{place}_entries"] for place in ("vram", "pcie", "cpu")) == 12 * 6 * counters["slot_windows"]
    assert sum(counters[f"prompt_{place}_entries"] for place in ("vram", "pcie", "cpu")) == 12 * 6 * 60


def test_the_line_tells_drafts_and_shares():
    counters = {
        "decode_windows": 10, "slot_windows": 20, "drafts_offered": 10, "drafts_accepted": 5, "adapt_rounds": 3, "adapt_swaps": 7, "adapt_wait_us": 2000,
        "vram_entries": 60, "pcie_entries": 30, "cpu_entries": 10, "reach_us_0": 10000, "pool_us_0": 5000,
    }
    assert tier_line(counters, 0.05, ["host[0]"]) == (
        "strata batch: 10 windows, 3.00 rows and 5.00 ms a window, 50.0 % of 10 proposals accepted; 3 rounds, 7 swaps, adapt wait 0.200 ms; "
        "host[0] reach 1.00 ms pool 0.50 ms; entries a window: vram 6.0 (60.0 %), pcie 3.0 (30.0 %), cpu 1.0 (10.0 %)"
    )


# ---- a request's own share


def shares_of(engine, wanted) -> set[int]:
    """The shares in force in decoded windows of requests together."""
    tier, seen = engine.tiers.devices[0], set()
    plan = tier.plan
    tier.plan = lambda layer, ids, is_prompt: (seen.add(tier.share), plan(layer, ids, is_prompt))[1]
    engine.generate([replace(request, pcie_frac=share) for request, share in zip(requests(max_new=4), wanted, strict=True)])
    return seen


@pytest.mark.parametrize(
    ("wanted", "batch", "shares"),
    [((0.25, 0.25, 0.25), 3, {64}), ((0.25, 1.0, 0.0), 1, {64, 256, 0}), ((None, None, None), 3, {128}), ((0.25, None, None), 1, {64, 128}), ((0.25, 1.0, 0.25), 3, {64, 256, 128})],
    ids=str,
)
def test_a_request_may_have_a_share_of_its_own(wanted, batch, shares):
    with open_engine(expert_cache=384, pcie_frac=0.5, adapt_every=0, batch=batch) as engine:
        assert shares_of(engine, wanted) == shares


def test_a_requests_share_that_is_none_is_refused():
    with open_engine() as engine, pytest.raises(RequestError, match="pcie_frac=2.0"):
        engine.generate([replace(requests(n=1)[0], pcie_frac=2.0)])
