"""The real model's geometry, with small n-gram tables: what synthetic models of the card's benchmark are made in.

Does not know: weights, formats.
"""

from dataclasses import replace

from strata.errors import UsageError
from strata.model.config import ModelConfig

N_TABLES, TABLE_STEP = 16, 20100

REAL = ModelConfig(
    vocabulary=248320, context_length=262144, hidden=2560, n_layers=48, rms_epsilon=1e-6, n_streams=4, low_rank=320, qsa_interval=4,
    n_q_heads=24, n_kv_heads=2, head_dim=256, rope_base=1e7, rope_dims=64, n_indexer_heads=4, indexer_dim=128, indexer_top_k=2048,
    indexer_block=4, ssm_state=128, n_ssm_qk_heads=16, n_ssm_v_heads=48, conv_taps=4, n_experts=512, n_used=10, expert_ff=640, shared_ff=640,
    ple_layers=(1,), ple_ngram_size=3, ple_heads_per_ngram=8, ple_head_dim=160, ple_conv_taps=4, ple_dilation=3, ple_eos_token_id=4093,
    ple_multipliers=(23703573157769, 20109073645365, 8052911324071), ple_sizes=tuple(20011 + 2 * i for i in range(N_TABLES)),
    ple_offsets=tuple(TABLE_STEP * i for i in range(N_TABLES)), eos_token_id=4093, eot_token_id=4095, n_draft_layers=1, draft_token_ids=(),
)
"""The real model's geometry."""


def with_layers(config: ModelConfig, n_layers: int) -> ModelConfig:
    """Return the geometry with n_layers layers; raises UsageError where that leaves no kind of layer to measure."""
    least = config.qsa_interval
    if not least <= n_layers <= config.n_layers:
        raise UsageError(f"layers={n_layers}", f"a model here has {least} to {config.n_layers} layers", "use a number in between, or leave it out")
    return replace(config, n_layers=n_layers)
