"""Experts blocks with a tier at toy sizes, by router, dispatch, products, pool and meeting together; and a toy model's window."""

import numpy as np
import pytest

from strata.errors import DeviceError
from tests.gpu.checks_experts import forms_of
from tests.gpu.checks_tier import with_experts
from tests.gpu.geometry import TOY
from tests.gpu.tier_block import LAYERS, TierBlock

FEW = with_experts(TOY, 8, 2, 32)
FORMS = forms_of("Q8_0", "Q4_0", "Q8_0", "Q4_0")


@pytest.fixture
def block(card, control):
    made = []

    def make(n_slots: int, share: int = 0, n_places: int = 0) -> TierBlock:
        made.append(TierBlock(card, control, FEW, FORMS, n_slots, share, n_places))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(("n_slots", "share", "n_places", "n_rows"), [(8, 0, 0, 1), (1, 128, 2, 3), (16, 0, 0, 1)], ids=["half", "a slot and a ring", "all"])
def test_blocks_have_the_bits_of_the_host(n_slots, share, n_places, n_rows, block):
    made = block(n_slots, share, n_places)
    _, fetched, pooled = made.check(n_rows, made.one_by_one, turns=2 if n_rows == 1 else 1)
    assert (fetched > 0) == (n_places > 0) and (pooled == 0) == (n_slots == 16)
    assert set(made.jobs.calls) <= {(layer, False) for layer in LAYERS} and bool(made.jobs.calls) == (n_slots < 16)


def test_a_prompt_chunk_has_the_bits_of_the_host(block):
    made = block(5, 200, 2)
    assert made.check(9, made.one_by_one, is_prompt=True, turns=1).min() > 0
    assert not made.tier.served[0].any() and made.meetings.mailbox.areas.n_rows == 256


def test_a_job_that_fails_ends_its_window_and_no_other(block):
    made = block(1)
    _, _, launches = made.record(1)
    made.jobs.fail_at = 2
    made.meetings.begin()
    with pytest.raises(ArithmeticError, match="a job that fails"):
        made.one_by_one(launches, made.window(1))
    made.meetings.abort()
    assert not made.tier.served.any()
    made.check(1, made.one_by_one, turns=1)


def test_experts_that_move_are_found_where_they_went(block):
    made = block(4)
    made.check(1, made.one_by_one, turns=1)
    table = made.tier.residency
    for slot, (layer, expert) in enumerate(table.held.tolist()):
        table.vacate(layer, expert)
        comes = next(e for e in range(8) if table.slot_of[layer, e] < 0 and e != expert)
        made.tier.memory.load(layer, comes, slot)
        table.settle(layer, comes, slot)
    made.check(1, made.one_by_one, turns=1)


def test_a_slot_with_other_bytes_than_the_table_says_is_noticed(block):
    made = block(16)
    made.tier.memory.buffer.copy_to_device(np.zeros(made.tier.memory.buffer.size, np.uint8))
    with pytest.raises(AssertionError, match="differ"):
        made.check(1, made.one_by_one)


def test_a_kernel_that_gave_up_ends_the_window(block, monkeypatch):
    from strata.cuda import meeting

    made = block(1)
    made.meetings.patience_ns = 10**6
    _, _, launches = made.record(1)
    monkeypatch.setattr(meeting, "answer", lambda *of: None)
    made.meetings.begin()
    with pytest.raises(DeviceError, match="gave up"):
        made.one_by_one(launches, made.window(1))
    monkeypatch.undo()
    made.meetings.abort()
    made.meetings.patience_ns = 10**11
    made.check(1, made.one_by_one, turns=1)
