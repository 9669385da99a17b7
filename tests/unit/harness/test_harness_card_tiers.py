"""The suites of the expert tier on cards: which cases there are, and that none asks a card for what it does not compute.

Nothing is opened here: cases are settings.  The stresses on a card's pool are tried on stand-ins.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from harness.pool_stress import FAILING_LENGTH, fail_a_job, pool_sets, use_instructions
from harness.suites import loans
from harness.suites.table import SUITES
from strata.batch.settings import resolve
from strata.cpu_pool.arena import Banks, MappedArena
from strata.cpu_pool.team import Team
from strata.errors import PoolJobError
from strata.rows import Segment, Window
from tests.unit.harness.scopes import scope, shipped

TIERED = ("tier", "pcie", "ram", "pool", "loans")
BUDGET = 1 << 26
DEVICES = ({"devices": "cuda:0"}, {"devices": "cuda:0,cuda:1"}, {"devices": "cuda:0,host"}, {"devices": "cuda:0,host", "layer_split": (6,)})


@pytest.fixture(autouse=True)
def budgets(monkeypatch):
    """Budgets of cards that are not there."""
    monkeypatch.setattr(loans, "_budgets", lambda path, settings, is_tight: (BUDGET,) * len(settings.devices.split(",")))


def cases(suite, **options):
    return SUITES[suite].cases(scope(**options))


@pytest.mark.parametrize("suite", TIERED)
@pytest.mark.parametrize("devices", DEVICES, ids=lambda options: "-".join(map(str, options.values())))
def test_cards_have_cases_of_the_canonical_mode_only(suite, devices):
    found = cases(suite, **devices)
    if suite == "loans" and "host" in devices["devices"]:
        assert found == ()
        return
    assert found and len({case.name for case in found}) == len(found)
    for case in found:
        for arm in (case.left, case.right):
            settings = resolve(arm.settings, shipped()[0].config, 2)
            assert settings.mode.name == "canonical" and any(device.kind == "cuda" for device in settings.devices)
        assert not case.is_control and case.features


@pytest.mark.parametrize("suite", TIERED)
def test_cards_have_none_where_another_mode_is_asked_for(suite):
    assert cases(suite, devices="cuda:0", rounding="device") == ()


def test_caches_are_one_slot_a_tenth_half_and_all():
    model = shipped()[0]
    pairs = model.config.n_layers * model.config.n_experts
    sizes = {case.right.settings.expert_cache for case in cases("tier", devices="cuda:0")}
    assert {1, pairs // 10, pairs // 2, pairs, 0} <= sizes


def test_two_devices_have_a_tier_each():
    for devices in ("cuda:0,cuda:1", "cuda:0,host"):
        stages = [case for case in (*cases("tier", devices=devices), *cases("ram", devices=devices)) if case.name == "stages"]
        assert len(stages) == 2 and all(case.right.settings.devices == devices and case.right.settings.layer_split for case in stages)


def test_loans_give_every_card_a_budget():
    alone, both = cases("loans", devices="cuda:0"), cases("loans", devices="cuda:0,cuda:1")
    assert {case.right.settings.devices for case in alone} == {f"cuda:0:{BUDGET}"}
    assert {case.right.settings.devices for case in both} == {f"cuda:0:{BUDGET}", f"cuda:0:{BUDGET},cuda:1:{BUDGET}"}
    assert all(case.left.settings.expert_cache is None and str(BUDGET) not in case.left.settings.devices for case in (*alone, *both))


def test_a_tight_budget_of_a_card_is_whole_pages_of_its_tier_and_no_chunk():
    purposes = {"weights": 1000, loans.CACHE: 5 << 20, loans.RING: 1 << 20, loans.BUFFERS: 3 << 20}
    assert loans._budget(purposes, True, True) == 1000 + (6 << 20) + loans.TABLES
    assert loans._budget(purposes, True, False) == 1000 + (6 << 20) + loans.TABLES + (4 << 20) + 2 * loans.CARD_PAGE
    assert loans._budget(purposes, False, True) == 1000 + (6 << 20) and loans._budget(purposes, False, False) == 1000 + (9 << 20)


def test_a_card_fetches_from_copies_in_ram():
    for case in cases("pcie", devices="cuda:0"):
        settings = case.right.settings
        assert settings.resident_experts or settings.arena_pin_gib == 0.0


def test_device_compares_tiers_of_a_card_with_the_host():
    found = {case.name: case for case in SUITES["device"].cases(scope()) if case.name.startswith("tier-")}
    assert {case.right.settings.expert_cache for case in found.values()} >= {1}
    for case in found.values():
        assert case.left.settings.devices == "host" and case.left.settings.expert_cache is None
        assert case.right.settings.devices == "cuda:0" and case.right.settings.expert_cache is not None


# ---- stresses on a card's jobs


class Card:
    """An executor of a card that calls its jobs once a window."""

    replays = True

    def __init__(self, jobs, call) -> None:
        self.tier, self._call = SimpleNamespace(jobs=jobs), call

    def run_window(self, window, residual, blocks):
        return self._call(self.tier.jobs)


def jobs_and_call(team):
    """The pool's jobs over layer 5 of the shipped model, and a call of three experts with four entries."""
    from collections import Counter

    from strata.host.placed import place_moe
    from strata.host.pool_jobs import PoolJobs

    placed = place_moe(shipped()[0].weights.layers[5].moe)
    banks = Banks({(5, part): getattr(placed, part).raw.reshape(-1, getattr(placed, part).expert_bytes) for part in ("gate", "up", "down")})
    jobs = PoolJobs({5: placed}, MappedArena(banks), team, Counter())
    values = np.random.default_rng(1).standard_normal((2, placed.gate.n_in)).astype(np.float32)
    lists = [np.array(entries, np.int32) for entries in ([3, 0, 7], [0, 2, 3, 4], [0, 1, 1, 0])]

    def call(called):
        out = np.full((4, placed.down.n_out), np.nan, np.float32)
        called.compute(5, *lists, values, out, True)
        return out

    return jobs, call


@pytest.mark.parametrize("instructions", pool_sets())
def test_every_instruction_set_gives_the_jobs_bits_on_a_card(instructions):
    with Team(1) as team:
        jobs, call = jobs_and_call(team)
        plain = call(jobs)
        executor = use_instructions(Card(jobs, call), instructions)
        found = executor.run_window(None, None, None)
        assert np.isfinite(plain).all() and plain.tobytes() == found.tobytes()


def test_a_job_fails_in_the_window_that_ends_the_prompt_and_in_no_other():
    with Team(1) as team:
        jobs, call = jobs_and_call(team)
        executor = fail_a_job(Card(jobs, call))
        short = Window.of([Segment(0, 0, tuple(range(FAILING_LENGTH)))], True, is_prompt=True)
        long = Window.of([Segment(0, 0, tuple(range(FAILING_LENGTH + 1)))], True, is_prompt=True)
        assert np.isfinite(executor.run_window(long, None, None)).all()
        with pytest.raises(PoolJobError, match="layer 5"):
            executor.run_window(short, None, None)
        assert np.isfinite(executor.run_window(long, None, None)).all()
