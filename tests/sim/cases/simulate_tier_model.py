"""A toy model's windows through the executor, its experts partly elsewhere: host, card and pool give the host's bits."""

import pytest

from strata.model.model import load_model
from strata.rows import Segment, Window
from strata.windows.stage_pass import run_stage
from tests.gpu.tier_pair import TierPair
from tests.unit.model import synthetic

TOY = {
    "n_layers": 1, "qsa_interval": 1, "ple_layers": (0,), "n_q_heads": 2, "n_kv_heads": 1, "head_dim": 32, "indexer_dim": 32, "n_indexer_heads": 1,
    "expert_ff": 32, "shared_ff": 32, "ssm_state": 64, "n_ssm_qk_heads": 1, "n_ssm_v_heads": 1,
}


def row(slot: int, position: int) -> Window:
    return Window.of([Segment(slot, position, (7 * position + 1,))], True)


def test_windows_have_the_bits_of_the_host_and_one_that_fails_ends_alone(tmp_path, card, control):
    model = load_model(synthetic.build(seed=3, types={"output.weight": "BF16"}, **TOY).write(tmp_path / "toy.gguf"))
    with TierPair(card, model, control, 2, 64) as pair:
        pair.plain(row(0, 0))
        pair.tier.jobs.fail_at = 1
        with pytest.raises(ArithmeticError, match="a job that fails"):
            run_stage(pair.card, row(1, 0), None)
        pair.card.clear(1)
        points = pair.run(row(0, 1))
        assert points >= {"moe.experts", "moe.ids", "moe.output", "moe.shared", "logits"} and "moe.hidden" not in points
        assert pair.tier.served[0].sum() == 2 * model.config.n_used and pair.tier.served[0, 2] > 0
