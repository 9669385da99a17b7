"""Faults of a card's tier, planted in an engine on the simulator's memory: each changes what it says, and nothing else is computed."""

from types import SimpleNamespace

import numpy as np
import pytest

from harness.faults.catalogue import card_tiers
from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings
from strata.cuda.card.launch import Launch
from strata.cuda.tier.mailbox import FLAG, JOB_ENTRIES, N_JOBS, N_ROWS
from strata.errors import PoolJobError
from strata.experts.residency import ABSENT
from tests.unit.harness.scopes import shipped

FAULTS = {fault.name: fault for fault in card_tiers.faults()}
LAYER, JOBS = 5, 3


@pytest.fixture(autouse=True)
def no_launch(monkeypatch):
    monkeypatch.setattr(Launch, "go", lambda self, stream=None: None)


@pytest.fixture
def engine():
    settings = EngineSettings(devices="cuda:0", context=128, expert_cache=384, pcie_frac=0.5, arena_pin_gib=0.0, threads=1)
    with Engine(shipped()[0], settings) as opened:
        yield opened


def sent(engine):
    """The tables that a window finds on the card: slot_of [layers, E], sources [layers, E, 3]."""
    meetings, n = engine.stages[0].executor.meetings, shipped()[0].config.n_experts
    meetings.begin()
    card = meetings.tables.card
    return card.slot_of.copy_to_host().reshape(-1, n), card.sources.copy_to_host().reshape(-1, n, 3)


def message(meetings, seed: int) -> None:
    """Have layer LAYER ask for jobs of one row, as its dispatch would."""
    areas, header, width = meetings.mailbox.areas(1), meetings.mailbox.header(LAYER), meetings.config.hidden
    header[N_JOBS], header[JOB_ENTRIES], header[N_ROWS] = JOBS, JOBS, 1
    areas.job_experts.host[:JOBS], areas.job_starts.host[: JOBS + 1], areas.job_rows.host[:JOBS] = (7, 3, 20), range(JOBS + 1), 0
    areas.values.host[:width] = np.random.default_rng(seed).standard_normal(width)
    header[FLAG] = meetings.step << 1 | 1


def met(engine, seed: int = 1) -> np.ndarray:
    """What the card finds when the answer of a meeting comes."""
    meetings = engine.stages[0].executor.meetings
    message(meetings, seed)
    meetings._compute(LAYER, False)
    assert meetings.mailbox.done.host[LAYER] == meetings.step
    found = meetings.mailbox.areas(1).outputs.host[: JOBS * meetings.config.hidden]
    return found.reshape(JOBS, -1).copy()


def test_tables_are_those_of_the_window_before(engine):
    tier = engine.tiers.devices[0]
    FAULTS["card-tier-stale-table"].plant(engine)
    before = tier.residency.slot_of.copy()
    assert np.array_equal(sent(engine)[0], before)
    layer, expert = tier.residency.held[9].tolist()
    tier.residency.vacate(layer, expert)
    assert np.array_equal(sent(engine)[0], before) and np.array_equal(sent(engine)[0], tier.residency.slot_of)


def test_one_slot_of_every_layer_is_the_one_beside(engine):
    true = sent(engine)[0]
    FAULTS["card-tier-slot-beside"].plant(engine)
    found = sent(engine)[0]
    assert ((found != true).sum(axis=1) == 1).all() and np.array_equal(found == ABSENT, true == ABSENT)


@pytest.mark.parametrize("name", ["card-tier-source-beside", "card-tier-ring-stale"])
def test_experts_are_fetched_elsewhere(engine, name):
    true = sent(engine)[1]
    FAULTS[name].plant(engine)
    found = sent(engine)[1]
    there = true[:, :, 0] != 0
    assert np.array_equal(there, found[:, :, 0] != 0) and there.any()
    assert (found[there] != true[there]).all(axis=1).mean() > 0.9


def test_outputs_are_turned(engine):
    engine.stages[0].executor.meetings.begin()
    first = met(engine, 1)
    FAULTS["card-tier-turned-outputs"].plant(engine)
    assert np.array_equal(met(engine, 1), first[::-1])


def test_outputs_are_those_of_the_meeting_before(engine):
    meetings = engine.stages[0].executor.meetings
    meetings.begin()
    first, second = met(engine, 1), met(engine, 2)
    assert not np.array_equal(first, second)
    FAULTS["card-tier-former-outputs"].plant(engine)
    assert not met(engine, 1).any() and np.array_equal(met(engine, 2), first) and np.array_equal(met(engine, 1), second)


def test_the_answer_comes_before_the_outputs(engine, monkeypatch):
    meetings, seen = engine.stages[0].executor.meetings, []
    meetings.begin()
    jobs = meetings.tier.jobs
    compute = jobs.compute
    monkeypatch.setattr(jobs, "compute", lambda *given: (seen.append(int(meetings.mailbox.done.host[LAYER])), compute(*given)))
    met(engine)
    FAULTS["card-tier-early-answer"].plant(engine)
    meetings.begin()
    met(engine)
    assert seen == [0, meetings.step]


def test_a_failure_is_answered_with_zeros(engine, monkeypatch):
    meetings = engine.stages[0].executor.meetings
    meetings.begin()

    def failing(*_):
        raise PoolJobError(LAYER, ValueError("planted"))

    monkeypatch.setattr(meetings.tier.jobs, "compute", failing)
    with pytest.raises(PoolJobError):
        met(engine)
    FAULTS["card-tier-failure-unseen"].plant(engine)
    assert not met(engine).any()


def test_nothing_is_counted(engine):
    meetings, counted = engine.stages[0].executor.meetings, []
    meetings.end = lambda window, routed: counted.append(routed)
    FAULTS["card-tier-uncounted"].plant(engine)
    meetings.end(SimpleNamespace(), "counts")
    assert counted == [None]


@pytest.mark.parametrize("part", ["gate", "up", "down"])
def test_one_bit_of_a_part_is_stored_otherwise(engine, part):
    tier = engine.tiers.devices[0]
    layer, expert = tier.residency.held[3].tolist()
    true = {name: tier.arena.expert(layer, name, expert) for name in ("gate", "up", "down")}
    FAULTS[f"card-tier-repacked-{part}"].plant(engine)
    for _ in range(2):
        found = tier.memory.saved(layer, 3)
        assert {name: int((found[name] != true[name]).sum()) for name in true} == {name: int(name == part) for name in true}
        tier.memory.load(layer, expert, 3)
