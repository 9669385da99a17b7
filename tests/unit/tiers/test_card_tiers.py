"""The expert tier of cards, on cards that are not there: bits, budgets, page-locked copies, shares, rounds, splits, what is said."""

import logging
import threading
from dataclasses import replace

import numpy as np
import pytest

from strata.batch.settings import EngineSettings, resolve
from strata.errors import DeviceMemoryError, UsageError
from strata.experts.filling import CARD_RESERVE_MIB, MIB
from strata.model.profile_file import read_profile
from strata.split.budget import device_bytes
from strata.split.card_opening import share_copies
from tests.unit.harness.scopes import shipped
from tests.unit.tiers.cards import N_PAIRS, answered_on, cards
from tests.unit.tiers.opened import digests, open_engine, requests

HALF = 384
STILL = {"adapt_every": 0}
RAM = {"resident_experts": True}


@pytest.fixture(scope="module")
def expected():
    with open_engine() as engine:
        return digests(engine.generate(requests()))


# ---- bits


@pytest.mark.parametrize(
    ("devices", "settings"),
    [
        ("cuda:0", {"expert_cache": 1, **STILL}),
        ("cuda:0", {"expert_cache": 0, **STILL}),
        ("cuda:0", {"expert_cache": HALF, "adapt_every": 1}),
        ("cuda:0", {"expert_cache": HALF, "pcie_frac": 1.0, **RAM, "adapt_every": 1, "adapt_min_gain": 0.0}),
        ("cuda:0", {"expert_cache": HALF, "pcie_frac": 0.5, **RAM, "adapt_every": 1, "adapt_async": True, "batch": 3}),
        ("cuda:0", {"expert_cache": 77, "arena_pin_gib": 0.0, "batch": 3}),
        ("cuda:0", {"expert_cache": HALF, "mtp": True, "pcie_frac": 0.5, **RAM}),
        ("cuda:0,cuda:1", {"layer_split": (6,), "expert_cache": 200, "pcie_frac": 0.5, **RAM, "adapt_every": 1, "batch": 2}),
        ("cuda:0,host", {"layer_split": (6,), "expert_cache": 200, "pcie_frac": 0.5, **RAM, "adapt_every": 1}),
        ("cuda:0,cuda:1", {"layer_split": (6,), "expert_cache": 200, "batch": 4, "batch_groups": 2}),
    ],
    ids=str,
)
def test_a_cards_tier_changes_no_bit(monkeypatch, expected, devices, settings):
    found, counters, _, _ = answered_on(monkeypatch, requests(), devices, **settings)
    assert found == expected
    served = {place: counters[f"{place}_entries"] for place in ("vram", "pcie", "cpu")}
    assert sum(served.values()) == 12 * 6 * counters["slot_windows"] or settings.get("mtp")
    assert (served["cpu"] == 0) == (settings["expert_cache"] == 0) or settings.get("pcie_frac") == 1.0
    assert (served["pcie"] > 0) == (settings.get("pcie_frac", 0) > 0 or "arena_pin_gib" in settings)
    assert counters["adapt_swaps"] > 0 or settings.get("adapt_every") != 1


def test_swaps_keep_what_a_card_fetches_in_step_with_the_copies(monkeypatch):
    with cards(monkeypatch), open_engine(devices="cuda:0", expert_cache=HALF, pcie_frac=1.0, adapt_every=1, adapt_min_gain=0.0, **RAM) as engine:
        tier = engine.tiers.devices[0]
        version, swapped = tier.sources_version, engine.generate(requests()).counters["adapt_swaps"]
        assert swapped > 0 and tier.sources_version == version + swapped
        kept = tier.sources.copy()
        tier._copies.fill(tier.sources, tier.layers)
        assert np.array_equal(kept, tier.sources)
        fetchable = tier.sources[:, :, 0] != 0
        assert np.array_equal(fetchable, tier.residency.slot_of < 0) and tier.n_fetchable == N_PAIRS - HALF


# ---- budgets


def test_auto_takes_what_the_driver_calls_free_beside_the_reserve_and_prompt_buffers(monkeypatch):
    def slots(total_mib, **settings):
        with cards(monkeypatch, total_mib * MIB) as found, open_engine(devices="cuda:0", expert_cache=0, prefill=64, **STILL, **settings) as engine:
            return engine.tiers.devices[0].residency.n_slots, found[0].memory().free_bytes

    n, free = slots(740)
    assert 0 < n < N_PAIRS and free >= CARD_RESERVE_MIB * MIB
    more, _ = slots(740, vram_reserve_mib=695)
    assert more > n
    assert slots(1024)[0] == N_PAIRS


@pytest.mark.parametrize(("total_mib", "borrows"), [(705, True), (1024, False)])
def test_prompt_buffers_are_borrowed_where_the_reserve_would_not_stay_free(monkeypatch, total_mib, borrows):
    with cards(monkeypatch, total_mib * MIB), open_engine(devices="cuda:0", expert_cache=HALF, prefill=64, **STILL) as engine:
        assert engine.tiers.lending.loans[0].borrows == borrows


def test_a_card_without_room_for_one_slot_is_an_error_that_says_what_is_free(monkeypatch):
    with cards(monkeypatch, 700 * MIB), pytest.raises(DeviceMemoryError, match="one slot of the expert cache"), open_engine(devices="cuda:0", expert_cache=0, prefill=8):
        pass


@pytest.mark.parametrize("settings", [{"expert_cache": 0}, {"expert_cache": HALF, **RAM}], ids=str)
def test_the_plan_says_what_a_cards_tier_takes(monkeypatch, settings):
    resolved = resolve(EngineSettings(context=128, devices="cuda:0", **settings), shipped()[0].config, 2)
    with cards(monkeypatch):
        planned, = device_bytes(shipped()[0], resolved)
        with open_engine(devices="cuda:0", **settings) as engine:
            taken = engine.stages[0].executor.device.taken
    of = dict(planned.purposes)
    assert {name: of[name] for name in taken} == taken and ("expert staging ring" in of)


# ---- copies and shares


@pytest.mark.parametrize(
    ("settings", "locked"),
    [({}, 0), ({"resident_experts": True}, N_PAIRS - HALF), ({"arena_pin_gib": 0.0}, N_PAIRS), ({"resident_experts": True, "pcie_frac": 0.0}, 0)],
    ids=str,
)
def test_copies_in_ram_are_page_locked_once_and_given_back(monkeypatch, settings, locked):
    with cards(monkeypatch) as found, open_engine(devices="cuda:0", expert_cache=HALF, **STILL, **settings) as engine:
        tier = engine.tiers.devices[0]
        n_bytes = sum(found[0].registered.values())
        assert tier.n_fetchable == locked and n_bytes == (tier.arena.copied_bytes if locked else 0)
    assert found[0].registered == {}


def test_part_of_a_full_copy_is_locked_and_fetched(monkeypatch):
    _, _, tables, held = answered_on(monkeypatch, requests(max_new=2), expert_cache=HALF, arena_pin_gib=8 / 1024, **STILL)
    assert 0 < tables[0][2] < N_PAIRS and sum(held[0].values()) <= 8 * MIB


def test_copies_are_locked_once_for_the_cards_of_a_split(monkeypatch):
    _, _, tables, held = answered_on(monkeypatch, requests(max_new=2), "cuda:0,cuda:1", layer_split=(6,), expert_cache=100, **RAM, **STILL)
    assert [bool(card) for card in held] == [True, False]
    assert [fetchable for _, _, fetchable in tables] == [HALF - 100, HALF - 100]


def test_what_the_driver_refuses_to_lock_is_said_and_computed_by_the_pool(monkeypatch, caplog, expected):
    with caplog.at_level(logging.INFO):
        found, counters, tables, _ = answered_on(monkeypatch, requests(), refuses=True, expert_cache=HALF, pcie_frac=0.5, **RAM, **STILL)
    assert found == expected and counters["pcie_entries"] == 0 and tables[0][1:] == (0, 0)
    assert "cuda:0 could not lock" in caplog.text and "(NO_LUCK)" in caplog.text and "cuda:0 fetches nothing" in caplog.text


def test_a_share_without_copies_in_ram_is_said_to_mean_nothing(monkeypatch, caplog):
    with caplog.at_level(logging.INFO):
        _, _, tables, _ = answered_on(monkeypatch, requests(max_new=2), expert_cache=HALF, pcie_frac=0.5, **STILL)
    assert tables[0][1] == 0 and "cuda:0 fetches nothing" in caplog.text and "--resident-experts" in caplog.text


def test_the_share_of_each_card_is_given_or_probed(monkeypatch):
    split = {"layer_split": (6,), "expert_cache": 100, **RAM, **STILL}
    _, _, tables, _ = answered_on(monkeypatch, requests(max_new=2), "cuda:0,cuda:1", **split)
    assert all(0 < share < 256 for _, share, _ in tables)
    _, _, tables, _ = answered_on(monkeypatch, requests(max_new=2), "cuda:0,cuda:1", pcie_frac=0.55, **split)
    assert [share for _, share, _ in tables] == [141, 141]


@pytest.mark.parametrize(("wanted", "most"), [(0.0, 0.0), (1.0, 1.0)])
def test_a_request_has_a_share_of_its_own_on_a_card(monkeypatch, wanted, most):
    own = [replace(request, pcie_frac=wanted) for request in requests(max_new=3)]
    _, counters, tables, _ = answered_on(monkeypatch, own, expert_cache=HALF, pcie_frac=0.5, **RAM, **STILL)
    missed = counters["pcie_entries"] + counters["cpu_entries"]
    assert counters["pcie_entries"] == most * missed and missed > 0 and tables[0][1] == wanted * 256


def test_a_probe_leaves_no_trace_in_the_counts(monkeypatch):
    with cards(monkeypatch), open_engine(devices="cuda:0", expert_cache=HALF, **RAM) as engine:
        tier = engine.tiers.devices[0]
        assert tier.share > 0 and not tier.blobs and tier.pool.seconds == 0 and not tier.served.any()


# ---- closing and refusals


def test_the_threads_of_a_cards_pool_end_with_the_engine(monkeypatch):
    with cards(monkeypatch), open_engine(devices="cuda:0", expert_cache=HALF, threads=2) as engine:
        team = engine.tiers.devices[0].jobs.team
        assert team.n_threads == 2 and all(thread.is_alive() for thread in team._threads)
    assert not any(thread.is_alive() for thread in team._threads)


def test_what_was_opened_is_closed_where_a_later_step_fails(monkeypatch):
    before = threading.active_count()
    with cards(monkeypatch) as found:
        monkeypatch.setattr("strata.split.tier_opening.share_copies", lambda tiers, devices, share: (share_copies(tiers, devices, share), 1 / 0))
        with pytest.raises(ZeroDivisionError), open_engine(devices="cuda:0,cuda:1", layer_split=(6,), expert_cache=100, threads=3, **RAM):
            pass
    assert threading.active_count() == before and not any(card.registered for card in found)


@pytest.mark.parametrize("settings", [{}, {"expert_cache": HALF, **STILL}], ids=str)
def test_what_a_card_routes_becomes_a_profile(monkeypatch, tmp_path, settings):
    paths = [str(tmp_path / name) for name in ("host.json", "card.json")]
    with open_engine(expert_profile_save=paths[0]) as engine:
        engine.generate(requests(max_new=2))
    answered_on(monkeypatch, requests(max_new=2), expert_profile_save=paths[1], **settings)
    host, card = (read_profile(path, shipped()[0].config).pairs.tolist() for path in paths)
    assert host == card and len(host) > 0


def test_a_profile_that_could_not_be_written_is_refused_before_anything_is_opened(monkeypatch):
    with cards(monkeypatch) as found, pytest.raises(UsageError, match="its folder is not there"):
        open_engine(devices="cuda:0", expert_cache=HALF, expert_profile_save="/no/such/folder/own.json")
    assert "expert cache" not in found[0].taken
