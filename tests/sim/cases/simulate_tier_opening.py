"""Engines with an expert tier on cards, opened on the simulator's memory; nothing is computed."""

import numpy as np
import pytest

from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings
from strata.cuda.card.launch import Launch
from strata.cuda.tier.expert_cache import CardExpertMemory
from strata.errors import DeviceError
from strata.experts.residency import ABSENT
from strata.split.adaptation import Move, copy_all
from strata.split.budget import device_bytes
from strata.split.card_tier import CardTier
from tests.unit.harness.scopes import shipped

HALF, ALL = 384, 768


@pytest.fixture(autouse=True)
def no_launch(monkeypatch):
    monkeypatch.setattr(Launch, "go", lambda self, stream=None: None)


def opened(**settings) -> Engine:
    return Engine(shipped()[0], EngineSettings(**{"devices": "cuda:0", "context": 128, "expert_cache": HALF, **settings}))


def slot_bytes(tier, layer: int, slot: int) -> bytes:
    return b"".join(blob.tobytes() for blob in tier.memory.saved(layer, slot).values())


def expert_bytes(tier, layer: int, expert: int) -> bytes:
    return b"".join(tier.arena.expert(layer, part, expert).tobytes() for part in ("gate", "up", "down"))


def test_a_card_holds_the_profiles_experts_and_leaves_the_others_away():
    with opened() as engine, Engine(shipped()[0], EngineSettings(devices="cuda:0", context=128)) as whole:
        tier, executor = engine.tiers.devices[0], engine.stages[0].executor
        assert isinstance(tier, CardTier) and isinstance(tier.memory, CardExpertMemory) and executor.tier is tier
        assert tier.residency.n_held == HALF and tier.memory.n_places == 0
        for slot, (layer, expert) in list(enumerate(tier.residency.held.tolist()))[::37]:
            assert slot_bytes(tier, layer, slot) == expert_bytes(tier, layer, expert)
        taken, everything = executor.device.taken, whole.stages[0].executor.device.taken
        assert taken["expert cache"] >= HALF * tier.memory.slot_bytes
        assert taken["weights of layers 0-11"] < everything["weights of layers 0-11"] - HALF * tier.memory.slot_bytes


def test_auto_holds_everything_where_there_is_room():
    with opened(expert_cache=0) as engine:
        assert engine.tiers.devices[0].holds_all and engine.tiers.devices[0].n_pairs == ALL and engine.tiers.adaptation is None


def test_copies_in_ram_have_addresses_and_the_link_is_probed():
    with opened(resident_experts=True) as engine:
        tier = engine.tiers.devices[0]
        assert tier.n_fetchable == ALL - HALF and 0 < tier.share < 256 and tier.memory.n_places == 64
        assert np.array_equal(tier.sources[:, :, 0] != 0, tier.residency.slot_of == ABSENT)
        assert engine.stages[0].executor.device.taken["expert staging ring"] == 64 * tier.memory.slot_bytes


def test_a_swap_copies_bytes_there_and_back():
    with opened(resident_experts=True, pcie_frac=0.5) as engine:
        tier = engine.tiers.devices[0]
        layer, goes = tier.residency.held[5].tolist()
        comes = int(np.flatnonzero(tier.residency.slot_of[layer] == ABSENT)[0])
        before = expert_bytes(tier, layer, goes)
        slot = tier.residency.vacate(layer, goes)
        saved, = copy_all([Move(tier, layer, comes, goes, slot)])
        tier.residency.settle(layer, comes, slot)
        tier.exchange(layer, comes, goes, saved)
        assert slot_bytes(tier, layer, slot) == expert_bytes(tier, layer, comes) and expert_bytes(tier, layer, goes) == before
        assert (tier.sources[layer, comes, 0], tier.sources[layer, goes, 0] != 0) == (0, True)


@pytest.mark.parametrize("settings", [{}, {"resident_experts": True}], ids=str)
def test_the_plan_is_what_opening_takes(settings):
    with opened(**settings) as engine:
        planned, = device_bytes(shipped()[0], engine.resolved)
        taken = engine.stages[0].executor.device.taken
    assert {name: dict(planned.purposes)[name] for name in taken if name.startswith(("expert", "weights"))} == {
        name: n_bytes for name, n_bytes in taken.items() if name.startswith(("expert", "weights"))
    }


def test_cards_and_hosts_of_a_split_have_a_tier_each():
    with opened(devices="cuda:0,host,cuda:1", layer_split=(4, 8), expert_cache=100, pcie_frac=0.25, resident_experts=True) as engine:
        assert [tier.name for tier in engine.tiers.devices] == ["cuda:0", "host[1]", "cuda:1"]
        assert [tier.share for tier in engine.tiers.devices] == [64, 64, 64]


def test_another_rounding_is_refused_by_a_card():
    with pytest.raises(DeviceError, match="rounding=device on cuda:0"), opened(rounding="device"):
        pass
