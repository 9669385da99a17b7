"""Rounds on a running engine: blocking ones land before the next window, steps never hold one up, nothing moves while prompts are read."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from strata.experts.residency import ABSENT
from strata.experts.usage import DECODED, new_counts
from strata.split.adaptation import Adaptation, copy_all
from tests.unit.tiers.opened import RamArena, answered, open_engine, requests, tiered

HALF = 384
MOVING = {"expert_cache": HALF, "pcie_frac": 0.0, "adapt_every": 1, "adapt_min_gain": 0.5}


def settings(**changes) -> SimpleNamespace:
    defaults = {"adapt_every": 2, "adapt_swaps": 96, "adapt_decay": 0.5, "adapt_min_gain": 1.5, "adapt_async": False}
    return SimpleNamespace(**{**defaults, **changes})


@pytest.fixture
def cold():
    """A tier of two slots that hold experts 0 and 1 of layer 0, experts in RAM, and counts."""
    executor = tiered("canonical", [(0, 0), (0, 1)], arena_type=RamArena)
    counts = new_counts(executor.config.n_layers, executor.config.n_experts)
    yield executor.tier, counts
    executor.device.close()


def slot_bytes(tier, slot: int) -> bytes:
    blobs = tier.memory.saved(0, slot)
    return b"".join(blobs[part].tobytes() for part in ("gate", "up", "down"))


def expert_bytes(tier, expert: int) -> bytes:
    return b"".join(tier.arena.expert(0, part, expert).tobytes() for part in ("gate", "up", "down"))


def test_a_blocking_round_comes_when_its_windows_are_full_and_lands_before_the_next_window(cold):
    tier, counts = cold
    rounds = Adaptation([tier], counts, settings())
    counts[DECODED, 0, 3] = 5
    rounds.window_decoded()
    assert tier.residency.slot_of[0, 3] == ABSENT and rounds.counters["adapt_rounds"] == 0
    rounds.window_decoded()
    assert tier.residency.slot_of[0, 0] == ABSENT, "the victim is a miss at once"
    rounds.before_window()
    assert tier.residency.slot_of[0, 3] == 0 and slot_bytes(tier, 0) == expert_bytes(tier, 3)
    assert rounds.counters == {"adapt_rounds": 1, "evictions": 1, "adapt_swaps": 1}
    rounds.close()


def test_usage_decays_with_every_round(cold):
    tier, counts = cold
    rounds = Adaptation([tier], counts, settings(adapt_every=1, adapt_min_gain=100))
    counts[DECODED, 0, 3] = 8
    for expected in (4.0, 2.0, 1.0):
        rounds.window_decoded()
        assert rounds._usages[0].usage[0, 3] == expected
    rounds.close()


def test_an_asynchronous_round_moves_one_step_a_window_and_waits_for_nothing(cold, monkeypatch):
    tier, counts = cold
    may_copy = threading.Event()
    monkeypatch.setattr("strata.split.adaptation.copy_all", lambda moves: (may_copy.wait(30), copy_all(moves))[1])
    rounds = Adaptation([tier], counts, settings(adapt_every=1, adapt_async=True))
    counts[DECODED, 0, 3] = 5
    rounds.window_decoded()
    assert tier.residency.slot_of[0, 0] == 0, "chosen, nothing moved"
    rounds.window_decoded()
    assert tier.residency.slot_of[0, 0] == ABSENT, "the victim is a miss, the copy under way"
    rounds.before_window()
    rounds.window_decoded()
    assert tier.residency.slot_of[0, 3] == ABSENT and rounds.counters["adapt_late_steps"] == 1
    may_copy.set()
    rounds._copies.result()
    rounds.window_decoded()
    assert tier.residency.slot_of[0, 3] == 0 and slot_bytes(tier, 0) == expert_bytes(tier, 3)
    assert tier.arena.exchanged == [(0, 3, 0)]
    rounds.close()


def test_a_round_under_way_is_finished_before_a_prompt_is_read(cold):
    tier, counts = cold
    rounds = Adaptation([tier], counts, settings(adapt_every=1, adapt_async=True))
    counts[DECODED, 0, 3] = 5
    rounds.window_decoded()
    rounds.settle()
    assert tier.residency.slot_of[0, 3] == 0 and rounds.counters["adapt_swaps"] == 1
    rounds.close()


def test_free_slots_are_filled_without_a_victim(cold):
    tier, counts = cold
    tier.residency.slot_of[0, 1], tier.residency.held[1] = ABSENT, ABSENT
    rounds = Adaptation([tier], counts, settings(adapt_every=1))
    counts[DECODED, 0, 5] = 3
    rounds.window_decoded()
    rounds.before_window()
    assert (tier.residency.slot_of[0, 5], rounds.counters["evictions"], tier.arena.exchanged) == (1, 0, [])
    rounds.close()


def test_copies_that_fail_end_a_round_and_not_the_engine(cold, monkeypatch, caplog):
    tier, counts = cold

    def failing(moves):
        raise OSError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr("strata.split.adaptation.copy_all", failing)
        rounds = Adaptation([tier], counts, settings(adapt_every=1))
        counts[DECODED, 0, 3] = 5
        rounds.window_decoded()
        rounds.before_window()
    assert "the disk is gone" in caplog.text and rounds.counters["adapt_failed_rounds"] == 1
    assert (tier.residency.slot_of[0, 3], tier.residency.free_slots().tolist()) == (ABSENT, [0])
    rounds.window_decoded()
    rounds.before_window()
    assert tier.residency.slot_of[0, 3] == 0 and slot_bytes(tier, 0) == expert_bytes(tier, 3)
    rounds.close()


@pytest.mark.parametrize(
    "changes",
    [{}, {"batch": 3}, {"batch": 3, "adapt_every": 3}, {"expert_profile": "none"}, {"adapt_swaps": 1}, {"mtp": True, "spec_policy": "full"}, {"prefill": 7}],
    ids=str,
)
def test_rounds_change_no_bit_of_an_answer(changes):
    plain, _, _ = answered()
    found, counters, _ = answered(**{**MOVING, **changes})
    assert found == plain
    assert counters["adapt_swaps"] > 0 and counters["vram_entries"] > 0 and counters["cpu_entries"] > 0


@pytest.mark.parametrize("off", [{"adapt_every": 0}, {"adapt_swaps": 0}, {"expert_cache": 768}])
def test_no_rounds_where_there_is_nothing_to_do(off):
    with open_engine(**{**MOVING, **off}) as engine:
        assert engine.tiers.adaptation is None
        assert engine.generate(requests(3)).counters["adapt_rounds"] == 0


@pytest.mark.parametrize(
    "changes", [{}, {"batch": 3}, {"resident_budget_gib": 0.004}, {"resident_experts": False, "arena_pin_gib": 0.001}, {"devices": "host,host", "layer_split": (5,)}], ids=str
)
def test_asynchronous_rounds_on_a_running_engine_change_no_bit(changes):
    plain, _, _ = answered()
    found, counters, notes = answered(**{**MOVING, "adapt_async": True, "resident_experts": True, **changes})
    assert found == plain and notes == ()
    assert counters["adapt_swaps"] > 0 and counters["evictions"] > 0


def test_a_swap_gives_the_newcomers_copy_to_the_victim():
    with open_engine(**MOVING, resident_experts=True) as engine:
        tier = engine.tiers.devices[0]
        before = {tuple(pair) for pair in tier.residency.held.tolist()}
        assert not any(tier.arena.is_resident(*pair) for pair in before)
        engine.generate(requests())
        held = {tuple(pair) for pair in tier.residency.held.tolist()}
        assert before - held and not any(tier.arena.is_resident(*pair) for pair in held)
        assert all(tier.arena.is_resident(*pair) for pair in before - held)


def test_nothing_moves_while_a_prompt_is_read():
    with open_engine(**MOVING, batch=2, prefill=5) as engine:
        versions = []
        table = engine.tiers.devices[0].residency
        submit = engine.submit

        def watched(window):
            engine.tiers.before_window()
            before = int(table.version[0])
            future = submit(window)
            versions.append((window.is_prompt, before, int(table.version[0])))
            return future

        engine.submit = watched
        engine.generate(requests())
    assert all(before == after for _, before, after in versions)
    reads = [before for is_prompt, before, _ in versions if is_prompt]
    assert len(set(reads)) > 1, "rounds were held between prompts"
    assert np.diff(reads).min() >= 0


def test_prompts_do_not_count_as_usage():
    with open_engine(**{**MOVING, "adapt_every": 1000}) as engine:
        engine.generate(requests(1))
        assert engine.tiers.counts[DECODED].sum() == 0 < engine.tiers.counts[1].sum()
