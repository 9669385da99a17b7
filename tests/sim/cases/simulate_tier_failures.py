"""Experts blocks with a tier at toy sizes: a job that fails, a kernel that gives up, experts that move between windows."""

import pytest

from strata.errors import DeviceError
from tests.gpu.checks_experts import forms_of
from tests.gpu.checks_tier import with_experts
from tests.gpu.geometry import TOY
from tests.gpu.tier_block import TierBlock

FEW = with_experts(TOY, 8, 2, 32)
FORMS = forms_of("Q8_0", "Q4_0", "Q8_0", "Q4_0")


def test_a_job_that_fails_ends_its_window_and_no_other(card, control):
    with TierBlock(card, control, FEW, FORMS, 1) as block:
        _, _, launches = block.record(1)
        block.jobs.fail_at = 2
        block.meetings.begin()
        with pytest.raises(ArithmeticError, match="a job that fails"):
            block.one_by_one(launches, block.window(1))
        block.meetings.abort()
        assert not block.tier.served.any()
        block.check(1, block.one_by_one, turns=1)


def test_a_kernel_that_gave_up_ends_the_window(card, control, monkeypatch):
    from strata.cuda.tier import meeting

    with TierBlock(card, control, FEW, FORMS, 1) as block:
        block.meetings.patience_ns = 10**6
        _, _, launches = block.record(1)
        monkeypatch.setattr(meeting, "answer", lambda *of: None)
        block.meetings.begin()
        with pytest.raises(DeviceError, match="gave up"):
            block.one_by_one(launches, block.window(1))
        monkeypatch.undo()
        block.meetings.abort()
        block.meetings.patience_ns = 10**11
        block.check(1, block.one_by_one, turns=1)


def test_experts_that_move_are_found_where_they_went(card, control):
    with TierBlock(card, control, FEW, FORMS, 4) as block:
        block.check(1, block.one_by_one, turns=1)
        table = block.tier.residency
        for slot, (layer, expert) in enumerate(table.held.tolist()):
            table.vacate(layer, expert)
            comes = next(e for e in range(8) if table.slot_of[layer, e] < 0 and e != expert)
            block.tier.memory.load(layer, comes, slot)
            table.settle(layer, comes, slot)
        block.check(1, block.one_by_one, turns=1)
