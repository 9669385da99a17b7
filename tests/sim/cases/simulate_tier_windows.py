"""A toy model whose experts do not all lie on the card: windows as a whole, by host, card and pool together."""

import numpy as np
import pytest

from strata.errors import DeviceError
from strata.model.model import load_model
from strata.rows import Segment, Window
from strata.windows.stage_pass import run_stage
from tests.gpu.tier_pair import TierPair
from tests.unit.model import synthetic

TOY = {
    "n_layers": 2, "qsa_interval": 2, "ple_layers": (0,), "n_q_heads": 2, "n_kv_heads": 1, "head_dim": 32, "indexer_dim": 32, "n_indexer_heads": 1,
    "expert_ff": 32, "shared_ff": 32, "ssm_state": 64, "n_ssm_qk_heads": 1, "n_ssm_v_heads": 1,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_model(synthetic.build(seed=3, types={"output.weight": "BF16"}, **TOY).write(tmp_path_factory.mktemp("toy") / "toy.gguf"))


def rows(*segments, keep=True, is_prompt=False) -> Window:
    """A window of (slot, start, count) segments with fixed tokens."""
    return Window.of([Segment(slot, start, tuple(range(7 * start + 1, 7 * start + 1 + count))) for slot, start, count in segments], keep, is_prompt=is_prompt)


@pytest.mark.parametrize(("n_slots", "share", "n_places"), [(8, 0, 0), (1, 128, 2), (16, 0, 0)], ids=["half", "one slot and a ring", "all"])
def test_windows_have_the_bits_of_the_host(n_slots, share, n_places, model, card, control):
    with TierPair(card, model, control, n_slots, 64, share, n_places) as pair:
        pair.plain(rows((0, 0, 1)))
        pair.plain(rows((0, 1, 2), (1, 0, 1), keep=False), [1, 1])
        served = pair.tier.served[0]
        assert served.sum() == 4 * 2 * 2 and (served[0] > 0) == (n_slots > 1) and (served[1] > 0) == (n_places > 0)
        assert (served[2] == 0) == (n_slots == 16) and bool(pair.tier.jobs.calls) == (n_slots < 16)


def test_a_prompt_and_an_observed_window(model, card, control):
    with TierPair(card, model, control, 6, 64) as pair:
        pair.plain(rows((0, 0, 9), is_prompt=True))
        assert pair.tier.served[1].sum() == 9 * 2 * 2 and not pair.tier.served[0].any()
        points = pair.run(rows((0, 9, 1), (1, 0, 1)))
        assert points >= {"moe.experts", "moe.ids", "moe.output", "moe.shared", "logits"} and "moe.hidden" not in points


def test_a_job_that_fails_ends_its_window_and_no_other(model, card, control):
    with TierPair(card, model, control, 1, 64) as pair:
        pair.plain(rows((0, 0, 1)))
        pair.tier.jobs.fail_at = 2
        with pytest.raises(ArithmeticError, match="a job that fails"):
            run_stage(pair.card, rows((1, 0, 1)), None)
        served = pair.tier.served.copy()
        pair.card.clear(1)
        pair.plain(rows((0, 1, 1), (1, 0, 1)))
        assert (pair.tier.served - served).sum() == 2 * 2 * 2


def test_experts_that_move_are_found_where_they_went(model, card, control):
    with TierPair(card, model, control, 4, 64) as pair:
        pair.plain(rows((0, 0, 1)))
        table = pair.tier.residency
        for slot, (layer, expert) in enumerate(table.held.tolist()):
            table.vacate(layer, expert)
            comes = next(e for e in range(8) if table.slot_of[layer, e] < 0 and e != expert)
            pair.tier.memory.load(layer, comes, slot)
            table.settle(layer, comes, slot)
        pair.plain(rows((0, 1, 1), (1, 0, 1)))


def test_a_stale_table_is_noticed(model, card, control):
    """The comparison must be able to fail: a slot that holds another expert than the table says."""
    with TierPair(card, model, control, 16, 64) as pair:
        held = np.flatnonzero(pair.tier.residency.held[:, 0] == 0)
        bank = pair.tier.memory.buffer
        for slot in held:
            bank[slot * pair.tier.memory.slot_bytes : slot * pair.tier.memory.slot_bytes + 200].copy_to_device(np.zeros(200, np.uint8))
        with pytest.raises(AssertionError, match="logits differ"):
            pair.plain(rows((0, 0, 1)))


def test_a_kernel_that_gave_up_ends_the_window(model, card, control, monkeypatch):
    from strata.cuda import meeting

    with TierPair(card, model, control, 1, 64) as pair:
        pair.card.meetings.patience_ns = 10**6
        monkeypatch.setattr(meeting, "answer", lambda *of: None)
        with pytest.raises(DeviceError, match="gave up"):
            run_stage(pair.card, rows((0, 0, 1)), None)
        monkeypatch.undo()
        pair.card.clear(0)
        pair.plain(rows((0, 0, 1)))
