"""Prompt loans on a card with a full budget, on the simulator's memory: what is lent, what lies there, what comes back; nothing is computed."""

import numpy as np
import pytest

from harness.options import Options
from harness.scope import Scope
from harness.suites import loans
from strata.batch.engine import Engine
from strata.cuda.card.launch import Launch
from strata.cuda.memory.chunk_buffers import CardChunkLayout, address_of
from strata.experts.residency import ABSENT
from strata.rows import Segment, Window
from strata.split.tier_sizes import BUFFERS
from tests.unit.harness.scopes import shipped

CONTEXT = 128


@pytest.fixture(autouse=True)
def no_launch(monkeypatch):
    monkeypatch.setattr(Launch, "go", lambda self, stream=None: None)


def scope() -> Scope:
    model, whole = shipped()
    return Scope(Options(devices="cuda:0", context=CONTEXT), model.config, whole.prompts)


def case(name: str):
    return next(case for case in loans.cases(scope()) if case.name == name)


def chunk(n_rows: int) -> Window:
    return Window.of([Segment(0, 0, (1,) * n_rows)], True, is_prompt=True)


def held_bytes(tier, slot: int) -> bytes:
    layer, _ = tier.residency.held[slot].tolist()
    return b"".join(blob.tobytes() for blob in tier.memory.saved(layer, slot).values())


def test_a_full_budget_lends_the_last_slots_and_fills_them_in_again():
    with Engine(shipped()[0], case("longer-than-chunk").right.settings) as engine:
        stage, tier = engine.stages[0], engine.tiers.devices[0]
        loan, executor, n_slots = engine.tiers.lending.loans[0], stage.executor, tier.residency.n_slots
        assert loan.borrows and engine.resolved.chunk_rows == loans.SMALL_CHUNK
        before, slots = tier.residency.slot_of.copy(), [n_slots - 1, n_slots - 2, 0]
        kept = [held_bytes(tier, slot) for slot in slots]
        stage.prepare(chunk(loans.SMALL_CHUNK))
        lent = int((before != ABSENT).sum() - (tier.residency.slot_of != ABSENT).sum())
        n_bytes = CardChunkLayout(shipped()[0].config, CONTEXT).bytes(loans.SMALL_CHUNK)
        assert lent == -(-n_bytes // tier.memory.slot_bytes) and lent < n_slots
        residual = executor.work_for(loans.SMALL_CHUNK).get("residual", 1)
        first = address_of(tier.memory.lendable(n_slots - lent))
        assert first <= address_of(residual) < first + lent * tier.memory.slot_bytes
        assert executor.work_for(1) is executor.work
        tier.memory.lendable(n_slots - lent)[:].copy_to_device(np.full(lent * tier.memory.slot_bytes, 0xA5, np.uint8))
        stage.prepare(Window.of([Segment(0, loans.SMALL_CHUNK, (1,))], True))
        assert executor.chunk_buffers is None and np.array_equal(tier.residency.slot_of, before)
        assert [held_bytes(tier, slot) for slot in slots] == kept
        assert loan.counters["lent_slots"] == lent and loan.counters["refilled_experts"] == lent


def test_the_same_loan_again_has_the_same_addresses():
    with Engine(shipped()[0], case("shorter-than-chunk").right.settings) as engine:
        stage, keys = engine.stages[0], []
        for rows in (40, 40, 60):
            stage.prepare(chunk(rows))
            keys.append(stage.executor.chunk_buffers.key)
            stage.prepare(Window.of([Segment(0, rows, (1,))], True))
        assert len(set(keys)) == 1


def test_a_device_with_room_has_buffers_of_its_own():
    with Engine(shipped()[0], case("own").right.settings) as engine:
        loan, executor = engine.tiers.lending.loans[0], engine.stages[0].executor
        assert not loan.borrows and executor.device.taken[BUFFERS] >= loan.layout.bytes(loan.chunk_rows)
        engine.stages[0].prepare(chunk(loans.SMALL_CHUNK))
        assert executor.chunk_buffers is not None and not loan.is_out


def test_every_case_of_the_suite_opens_and_borrows_or_owns():
    for one in loans.cases(scope()):
        with Engine(shipped()[0], one.right.settings) as engine:
            loan, = engine.tiers.lending.loans
            assert loan.borrows == (one.name != "own"), one.name
            engine.stages[0].prepare(chunk(min(loan.chunk_rows, 24)))
            assert engine.stages[0].executor.chunk_buffers is not None or loan.chunk_rows < 9
