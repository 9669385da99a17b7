"""Prompt buffers on host devices: sizes and budgets, what is lent and filled in again, what is said."""

import logging

import numpy as np
import pytest

from strata.batch.requests import Request
from strata.batch.settings import EngineSettings, resolve
from strata.errors import DeviceMemoryError, UsageError
from strata.experts.residency import ABSENT
from strata.host.chunk_buffers import ChunkBuffers, ChunkLayout
from strata.rows import Segment, Window
from strata.split.budget import device_bytes
from strata.split.tier_sizes import BUFFERS
from tests.unit.harness.scopes import shipped
from tests.unit.tiers.opened import digests, open_engine

STILL = {"pcie_frac": 0.0, "adapt_every": 0}
TIGHT = {"devices": "host:30m", "expert_cache": 0, **STILL}
SPLIT = {"devices": "host:17m,host:17m", "layer_split": (6,), "expert_cache": 0, **STILL}


def purposes(**settings):
    """Bytes of prompt buffers and of the cache, per device."""
    devices = device_bytes(shipped()[0], resolve(EngineSettings(context=128, **settings), shipped()[0].config, 2))
    return [(dict(device.purposes)[BUFFERS], dict(device.purposes)["expert cache"]) for device in devices]


def chunk_bytes(rows: int) -> int:
    return ChunkLayout(shipped()[0].config, True).bytes(rows)


# ---- sizes


def test_a_full_budget_borrows_and_a_free_one_does_not():
    assert purposes(**TIGHT)[0][0] == 0
    assert purposes(devices="host", expert_cache=0, **STILL)[0][0] == chunk_bytes(2048)
    assert purposes(devices="host:90m", expert_cache=0, **STILL)[0][0] == chunk_bytes(2048)


def test_own_buffers_are_taken_from_the_budget_before_the_cache_and_halve_with_the_chunk():
    (none, whole), = purposes(**TIGHT)
    (own, fewer), = purposes(**TIGHT, prefill_borrow=False, prefill=256)
    (half, more), = purposes(**TIGHT, prefill_borrow=False, prefill=128)
    assert (none, own, half) == (0, chunk_bytes(256), chunk_bytes(128)) and own == 2 * half
    assert whole > more > fewer and 0 <= whole - own - fewer < 35840


def test_a_number_of_slots_is_capped_for_own_buffers_and_said(caplog):
    with caplog.at_level(logging.INFO), open_engine(**{**TIGHT, "expert_cache": 380, "prefill_borrow": False, "prefill": 256}) as engine:
        slots = engine.tiers.devices[0].residency.n_slots
        assert slots < 380 and any(f"expert_cache=380 runs as {slots} slots" in note for note in engine.resolved.notes)
    assert "keeps its own" in caplog.text


@pytest.mark.parametrize("cache", [0, 5])
def test_buffers_that_leave_no_slot_are_an_error(cache):
    with pytest.raises(DeviceMemoryError, match="prompt buffers beside one slot"), open_engine(**{**TIGHT, "expert_cache": cache, "prefill_borrow": False}):
        pass


def test_the_automatic_chunk_is_what_the_cache_can_lend_and_a_given_one_is_cut_to_it():
    with open_engine(**TIGHT) as engine:
        rows, slots = engine.resolved.chunk_rows, engine.tiers.devices[0].residency.n_slots
    assert rows == slots * 35840 // chunk_bytes(1) and rows != 2048
    with open_engine(**TIGHT, prefill=5000) as engine:
        assert engine.resolved.chunk_rows == rows and any(f"prefill=5000 runs as {rows}" in note for note in engine.resolved.notes)
    with open_engine(**TIGHT, prefill=64) as engine:
        assert engine.resolved.chunk_rows == 64


@pytest.mark.parametrize(("split_own", "prefill", "owns"), [("", 64, False), ("1", 64, True), ("auto", 64, True), ("auto", 256, False)])
def test_split_own_keeps_buffers_on_every_device(split_own, prefill, owns):
    assert [own > 0 for own, _ in purposes(**SPLIT, split_own=split_own, prefill=prefill)] == [owns, owns]


def test_what_does_nothing_is_said_and_what_is_unknown_refused():
    config = shipped()[0].config
    assert "STRATA_SPLIT_OWN does nothing" in " ".join(resolve(EngineSettings(expert_cache=5, split_own="1"), config, 1).notes)
    assert "no_prefill_borrow does nothing" in " ".join(resolve(EngineSettings(prefill_borrow=False), config, 1).notes)
    with pytest.raises(UsageError, match="STRATA_SPLIT_OWN=2"):
        resolve(EngineSettings(split_own="2"), config, 1)


# ---- lending


def chunk(n: int) -> Window:
    tokens = shipped()[1].prompts[0].prompt[:n]
    return Window.of([Segment(0, 0, tuple(tokens), 0)], keep=True, is_prompt=True)


def test_the_last_slots_are_lent_overwritten_and_filled_in_with_what_lay_there():
    with open_engine(**TIGHT, prefill=16) as engine:
        tier, loan = engine.tiers.devices[0], engine.tiers.lending.loans[0]
        before, held = tier.memory.cache.copy(), tier.residency.held.copy()
        n_lent = -(-chunk_bytes(16) // 35840)
        engine.clear(0)
        engine.submit(chunk(12)).result()
        assert loan.is_out and (tier.residency.held[:-n_lent] == held[:-n_lent]).all() and (tier.residency.held[-n_lent:] == ABSENT).all()
        kept = len(before) - n_lent * 35840
        assert (tier.memory.cache[:kept] == before[:kept]).all() and not np.array_equal(tier.memory.cache[kept:], before[kept:])
        engine.tiers.lending.refill()
        assert not loan.is_out and (tier.residency.held == held).all()
        for slot, (layer, expert) in list(enumerate(held.tolist()))[-n_lent:]:
            lies = tier.memory.saved(layer, slot)
            assert all(np.array_equal(lies[part], tier.arena.expert(layer, part, expert)) for part in lies)


def test_a_window_of_eight_rows_borrows_nothing_and_takes_back_what_was_lent():
    with open_engine(**TIGHT, prefill=16) as engine:
        loan = engine.tiers.lending.loans[0]
        engine.clear(0)
        engine.submit(chunk(8)).result()
        assert not loan.counters["loans"]
        engine.clear(0)
        engine.submit(chunk(9)).result()
        assert loan.is_out
        engine.clear(0)
        engine.submit(chunk(3)).result()
        assert not loan.is_out and engine.stages[0].executor.chunk_buffers is None


def test_loans_are_counted_and_told(caplog):
    prompts = [Request(item.prompt[:20], 4) for item in shipped()[1].prompts[:2]]
    with open_engine() as engine:
        expected = digests(engine.generate(prompts))
    with caplog.at_level(logging.INFO), open_engine(**SPLIT, prefill=16) as engine:
        batch = engine.generate(prompts)
    assert digests(batch) == expected
    counters = batch.counters
    assert counters["loans"] == 4 and counters["lent_slots"] == counters["refilled_experts"] > 4 and counters["buffered_chunks"] == 4
    assert "borrows up to" in caplog.text and f"4 loans of {counters['lent_slots']} slots to prompts" in caplog.text


@pytest.mark.parametrize("groups", [1, 2])
def test_every_device_of_a_split_is_whole_again_at_the_end_of_a_run(groups):
    prompts = [Request(item.prompt[:20], 4, arrive_after=3 * i) for i, item in enumerate(shipped()[1].prompts[:4])]
    with open_engine() as engine:
        expected = digests(engine.generate(prompts))
    with open_engine(**SPLIT, prefill=12, batch=2, batch_groups=groups) as engine:
        held = [tier.residency.held.copy() for tier in engine.tiers.devices]
        for _ in range(2):
            batch = engine.generate(prompts)
            assert digests(batch) == expected and batch.counters["lent_slots"] == batch.counters["refilled_experts"] > 0
            assert all((tier.residency.held == before).all() for tier, before in zip(engine.tiers.devices, held, strict=True))


def test_buffers_of_one_chunk_do_not_overlap():
    layout = ChunkLayout(shipped()[0].config, True)
    buffers = ChunkBuffers(layout, 3, np.zeros(layout.bytes(3), np.uint8))
    for value, (name, width) in enumerate(layout.widths.items(), 1):
        buffers.take(name, (3, width))[:] = value
    assert all((buffers.take(name, (2, width)) == value).all() for value, (name, width) in enumerate(layout.widths.items(), 1))
    assert buffers.take("router", (3, 4)) is None and ChunkLayout(shipped()[0].config, False).row_bytes < layout.row_bytes
