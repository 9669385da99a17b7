"""Budgets of cards: how they are named, what they bound, and what sizes a tier within them."""

import pytest

from strata.batch.settings import EngineSettings, resolve
from strata.errors import UsageError
from strata.split.devices import parse_devices
from strata.split.tier_sizes import CARD_PAGE, TierDevice, size_tiers
from tests.unit.harness.scopes import shipped


class Rows:
    """Buffers of a thousand bytes a row."""

    row_bytes = 1000

    def bytes(self, rows: int) -> int:
        return 1000 * rows


class Layers(dict):
    """Experts of one layer, in slots of 64 KiB."""


@pytest.fixture
def slots(monkeypatch):
    monkeypatch.setattr("strata.split.tier_sizes.slot_bytes", lambda layers: 1 << 16)


def sized(free: int, is_card: bool, **settings):
    model = shipped()[0]
    resolved = resolve(EngineSettings(**{"pcie_frac": 0.0, "prefill": 512, **settings}), model.config, 1)
    device = TierDevice("cuda:0" if is_card else "host[0]", Layers({0: None}), free, free, is_card, Rows())
    return size_tiers(resolved, model.config, [device])


@pytest.mark.parametrize(("text", "budget", "index"), [("cuda:1", None, 1), ("cuda:0:20g", 20 << 30, 0), ("cuda:3:5000", 5000, 3), ("cuda:2:7m", 7 << 20, 2)])
def test_a_card_may_be_named_with_a_budget(text, budget, index):
    device, = parse_devices(text)
    assert (device.kind, device.budget_bytes, device.index, device.text) == ("cuda", budget, index, text)


@pytest.mark.parametrize("text", ["cuda:0:", "cuda:0:many", "cuda:0:5t", "cuda:0:5:5"])
def test_another_budget_is_refused(text):
    with pytest.raises(UsageError, match="devices="):
        parse_devices(text)


def test_a_cache_of_whole_pages_leaves_no_room_for_buffers_in_the_rest_of_a_page(slots):
    budget = 2 * CARD_PAGE + (1 << 16)
    found, = sized(budget, True, expert_cache=33, vram_reserve_mib=0).devices
    assert (found.n_slots, found.own_bytes) == (33, 0)
    on_host, = sized(budget, False, expert_cache=33).devices
    assert on_host.own_bytes == 512_000


def test_automatic_slots_leave_a_page_for_rounding(slots):
    whole, = sized(4 * CARD_PAGE, True, expert_cache=0, vram_reserve_mib=0).devices
    assert whole.n_slots * (1 << 16) <= 3 * CARD_PAGE and whole.n_slots > 2 * CARD_PAGE >> 16 or whole.n_slots == shipped()[0].config.n_experts


def test_a_given_cache_on_a_card_keeps_the_reserve_free_of_prompt_buffers(slots):
    free = 700 * (1 << 20) + 3 * CARD_PAGE
    assert sized(free, True, expert_cache=30).devices[0].own_bytes == 512_000
    assert sized(free - 2 * CARD_PAGE, True, expert_cache=30).devices[0].own_bytes == 0
