"""Expert tiers on a card: kernels against the host's dispatch, blocks and a whole model against the host, bit by bit; what fails.

Blocks and models run as graphs with launches that start early, and launch by launch.
"""

from dataclasses import replace

import numpy as np
import pytest

from strata.errors import DeviceError
from strata.experts.dispatch import SHARE_UNIT
from strata.rows import Segment, Window
from strata.windows.stage_pass import run_stage
from tests.gpu import checks_tier
from tests.gpu.checks_experts import forms_of
from tests.gpu.checks_tier import Case
from tests.gpu.geometry import REAL, SMALL
from tests.gpu.tier_block import TierBlock
from tests.gpu.tier_pair import TierPair

FEW_EXPERTS = replace(REAL, n_experts=24)
WINDOWS = 12


@pytest.mark.parametrize("config", [REAL, SMALL], ids=["real", "small"])
@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 5, 6, 7, 8, 9, 40, 300])
def test_dispatch_is_that_of_the_host(n_rows, config, card):
    for seed, case in enumerate((
        Case(n_rows, 256, 64, 64), Case(n_rows, 0, 0, 0), Case(n_rows, 2, 128, 64), Case(n_rows, 128, 256, 3), Case(n_rows, 100, 200, 64, 128),
        Case(n_rows, 64, 77, 32, 256), Case(n_rows, 0, 256, 1000),
    )):
        checks_tier.check_dispatch(card, config, case, seed)


@pytest.mark.parametrize("n_rows", [1, 8, 200])
def test_a_meeting_copies_what_the_pool_computed_or_leaves(n_rows, card):
    n_entries = n_rows * REAL.n_used
    for n_jobs in (0, 1, n_entries // 3, n_entries):
        checks_tier.check_meeting(card, REAL, n_rows, n_jobs, answered=True)
    checks_tier.check_meeting(card, REAL, n_rows, 3, answered=False, stopped=True)
    checks_tier.check_meeting(card, REAL, n_rows, 3, answered=False)


def test_slots_and_ring_hold_what_was_loaded_staged_and_fetched(card):
    checks_tier.check_memory_and_fetch(card, SMALL)


@pytest.mark.parametrize("n_rows", [1, 8, 300])
def test_routing_is_counted_where_there_is_no_tier(n_rows, card):
    checks_tier.check_routing_log(card, REAL, n_rows)


def test_tables_are_sent_when_their_version_changes(card):
    checks_tier.check_tables(card, SMALL)


def replayed(block: TierBlock, launches):
    """Return what runs a window's launches as a graph, all but the first of them early, and serves it."""
    from strata.cuda.card.graphs import GraphTable

    graphs = GraphTable(block.card)
    for launch in launches[1:]:
        launch.follow()
    return lambda made, window: block.meetings.replay(graphs, "window", tuple(made), window)


class Replays:
    """Runs windows of one shape as a graph that is captured once."""

    def __init__(self, block: TierBlock) -> None:
        self.block, self.run = block, None

    def __call__(self, launches, window) -> None:
        self.run = self.run or replayed(self.block, launches)
        self.run(launches, window)


FORMATS = [
    forms_of("Q2_0", "Q2_0", "Q2_0", "Q2_0"), forms_of("Q4_K", "Q4_0", "Q4_K", "Q4_0"), forms_of("IQ3_S", "IQ4_NL", "Q4_K", "Q8_0"),
    forms_of("Q3_K", "Q5_1", "Q3_K", "Q5_1", up="Q5_K"),
]


@pytest.mark.parametrize("forms", FORMATS, ids=["Q2_0", "Q4_K", "other formats", "gate and up differ"])
@pytest.mark.parametrize(("n_slots", "share", "n_places"), [(24, 0, 0), (1, 0, 0), (12, 128, 4), (2, 256, 64), (48, 64, 8)])
def test_blocks_have_the_bits_of_the_host(n_slots, share, n_places, forms, card, control):
    with TierBlock(card, control, FEW_EXPERTS, forms, n_slots, share, n_places) as block:
        for n_rows in (1, 2, 5, 8):
            block.check(n_rows, Replays(block), turns=WINDOWS)
            block.check(n_rows, block.one_by_one)
        for n_rows in (9, 130):
            block.check(n_rows, block.one_by_one, is_prompt=True)
        assert bool(block.jobs.calls) == (n_slots < 48)


def test_experts_that_move_between_replays_are_found_where_they_went(card, control):
    with TierBlock(card, control, FEW_EXPERTS, FORMATS[0], 20) as block:
        table = block.tier.residency
        for turn in range(6):
            block.check(2, Replays(block), turns=1)
            for slot in range(turn, 20, 5):
                layer, expert = table.held[slot].tolist()
                table.vacate(layer, expert)
                comes = next(e for e in range(24) if table.slot_of[layer, e] < 0 and e != expert)
                block.tier.memory.load(layer, comes, slot)
                table.settle(layer, comes, slot)


def test_a_job_that_fails_ends_its_window_and_no_other(card, control):
    with TierBlock(card, control, FEW_EXPERTS, FORMATS[0], 4) as block:
        replays = Replays(block)
        block.check(2, replays, turns=2)
        for fail_at in (1, 2):
            _, _, launches = block.record(2)
            block.jobs.fail_at = fail_at
            block.meetings.begin()
            with pytest.raises(ArithmeticError, match="a job that fails"):
                replayed(block, launches)(launches, block.window(2))
            block.meetings.abort()
            block.check(2, Replays(block), turns=2)


def test_a_kernel_gives_up_when_nobody_answers(card, control, monkeypatch):
    from strata.cuda.tier import meeting

    with TierBlock(card, control, FEW_EXPERTS, FORMATS[0], 4) as block:
        block.meetings.patience_ns = 200_000_000
        _, _, launches = block.record(2)
        honest = meeting.answer
        monkeypatch.setattr(meeting, "answer", lambda flags, i, value: None if flags.size > 1 else honest(flags, i, value))
        block.meetings.begin()
        with pytest.raises(DeviceError, match="gave up"):
            replayed(block, launches)(launches, block.window(2))
            card.synchronise()
            block.meetings.end(block.window(2), None)
        monkeypatch.undo()
        block.meetings.abort()
        block.meetings.patience_ns = 10**11
        block.check(2, Replays(block), turns=2)


@pytest.fixture(scope="module")
def model():
    from strata.cli.engine_flags import FIXTURE
    from strata.model.model import load_model

    return load_model(FIXTURE)


def rows(*segments, keep=True, is_prompt=False) -> Window:
    """A window of (slot, start, count) segments with fixed tokens."""
    return Window.of([Segment(slot, start, tuple((37 * (start + i) + slot) % 4000 for i in range(count))) for slot, start, count in segments], keep, is_prompt=is_prompt)


@pytest.mark.parametrize(("n_slots", "share", "n_places"), [(384, 0, 0), (77, 128, 32), (1, 0, 0), (768, 64, 4), (100, 256, 64)])
def test_the_shipped_model_has_the_bits_of_the_host(n_slots, share, n_places, model, card, control):
    with TierPair(card, model, control, n_slots, 512, share, n_places, batch=8) as pair:
        pair.plain(rows((0, 0, 40), is_prompt=True))
        pair.plain(rows((1, 0, 7), is_prompt=True))
        for step in range(4):
            pair.plain(rows((0, 40 + step, 1)))
        for step in range(4):
            pair.plain(rows((0, 44 + step, 1), (1, 7 + step, 1), (2, step, 1)))
        pair.plain(rows((0, 48, 3), (1, 11, 1), keep=False), [2, 1])
        pair.plain(rows((0, 50, 1), (1, 12, 4), (3, 0, 3)))
        points = pair.run(rows((0, 51, 1), (1, 16, 1)))
        assert "moe.experts" in points and "moe.hidden" not in points
        served, holds_all = pair.tier.served, n_slots == 768
        takes_all = share == SHARE_UNIT and n_places >= model.config.n_experts
        assert (served[0, 2] == 0) == (holds_all or takes_all) and (served[0, 1] > 0) == (n_places > 0 and not holds_all)


def test_a_failed_job_leaves_the_other_sessions_of_a_model(model, card, control):
    with TierPair(card, model, control, 100, 128) as pair:
        pair.plain(rows((0, 0, 1)))
        pair.plain(rows((0, 1, 1)))
        pair.tier.jobs.fail_at = 5
        with pytest.raises(ArithmeticError, match="a job that fails"):
            run_stage(pair.card, rows((1, 0, 1)), None)
        pair.card.clear(1)
        pair.tier.jobs.fail_at = 3
        with pytest.raises(ArithmeticError, match="a job that fails"):
            run_stage(pair.card, rows((1, 0, 20), is_prompt=True), None)
        pair.card.clear(1)
        pair.plain(rows((0, 2, 1), (1, 0, 1)))


def test_a_slot_with_other_bytes_than_the_table_says_is_noticed(model, card, control):
    with TierPair(card, model, control, 768, 64) as pair:
        whole = np.random.default_rng(0).integers(0, 256, pair.tier.memory.buffer.size, np.uint8) & 0x3F
        pair.tier.memory.buffer.copy_to_device(whole)
        with pytest.raises(AssertionError, match="logits differ"):
            pair.plain(rows((0, 0, 1)))


def test_memory_that_is_locked_is_seen_and_let_go(card):
    array = np.zeros(1 << 20, np.uint8)
    first, again = card.register(array), card.register(array)
    assert first and first == again and card.free_bytes > 0
    card.unregister(array)
    assert card.register(array) == first
    card.unregister(array)


def test_two_cards_see_memory_that_one_of_them_locked(card):
    from cuda.bindings import driver

    from strata.cuda.card.device import CudaDevice
    from strata.cuda.card.found import find_cards

    if len(find_cards()) < 2:
        pytest.skip("this machine has one card")
    array, other = np.arange(1 << 18, dtype=np.int32), CudaDevice(1)
    try:
        assert card.register(array) and other.register(array), (card.why_not_registered, other.why_not_registered)
        other.unregister(array)
        card.attach()
        assert driver.cuMemHostGetDevicePointer(array.ctypes.data, 0)[0] == driver.CUresult.CUDA_SUCCESS, "only who locked it unlocks it"
    finally:
        card.attach()
        card.unregister(array)
        other.close()
        card.attach()
