"""From a model's keys to a checked `ModelConfig`.

Every key is required unless a default stands beside it.  A value that no formula of the model could use is refused here
with its name, so that nothing below needs to check again.  Does not know: the weights (their shapes are checked against
the configuration when they are loaded).
"""

from strata.errors import ModelFileError
from strata.model.config import ModelConfig
from strata.model.config_checks import check_compress_ratios, check_config
from strata.model.draft_vocabulary import read_draft_token_ids
from strata.model.files import ARCHITECTURE, ModelFiles
from strata.model.keys import Keys


def read_config(files: ModelFiles) -> ModelConfig:
    """Read and check the configuration of an opened model; raises ModelFileError naming the key at fault."""
    keys = files.keys
    fields = {**_trunk(keys), **_attention(keys), **_recurrent(keys), **_experts(keys), **_ngrams(keys)}
    vocabulary = fields["vocabulary"]
    eos = keys.integer("tokenizer.ggml.eos_token_id")
    n_draft_layers = keys.integer(_full("nextn_predict_layers"), 0)
    config = ModelConfig(
        **fields,
        eos_token_id=eos,
        eot_token_id=keys.integer("tokenizer.ggml.eot_token_id", eos),
        n_draft_layers=n_draft_layers,
        draft_token_ids=read_draft_token_ids(files, vocabulary) if n_draft_layers else (),
    )
    check_config(config)
    _check_redundant_keys(keys, config)
    check_compress_ratios(files, config)
    return config


def _full(name: str) -> str:
    return f"{ARCHITECTURE}.{name}"


def _trunk(keys: Keys) -> dict:
    return {
        "vocabulary": keys.integer(_full("vocab_size")),
        "context_length": keys.integer(_full("context_length")),
        "hidden": keys.integer(_full("embedding_length")),
        "n_layers": keys.integer(_full("block_count")),
        "rms_epsilon": keys.number(_full("attention.layer_norm_rms_epsilon")),
        "n_streams": keys.integer(_full("hyper_connection.count")),
        "low_rank": keys.integer(_full("hyper_connection.low_rank")),
    }


def _attention(keys: Keys) -> dict:
    return {
        "qsa_interval": keys.integer(_full("full_attention_interval")),
        "n_q_heads": keys.integer(_full("attention.head_count")),
        "n_kv_heads": keys.integer(_full("attention.head_count_kv")),
        "head_dim": keys.integer(_full("attention.key_length")),
        "rope_base": keys.number(_full("rope.freq_base")),
        "rope_dims": keys.integer(_full("rope.dimension_count")),
        "n_indexer_heads": keys.integer(_full("attention.indexer.head_count")),
        "indexer_dim": keys.integer(_full("attention.indexer.key_length")),
        "indexer_top_k": keys.integer(_full("attention.indexer.top_k")),
        "indexer_block": keys.integer(_full("attention.indexer.block_size")),
    }


def _recurrent(keys: Keys) -> dict:
    return {
        "ssm_state": keys.integer(_full("ssm.state_size")),
        "n_ssm_qk_heads": keys.integer(_full("ssm.group_count")),
        "n_ssm_v_heads": keys.integer(_full("ssm.time_step_rank")),
        "conv_taps": keys.integer(_full("ssm.conv_kernel")),
    }


def _experts(keys: Keys) -> dict:
    return {
        "n_experts": keys.integer(_full("expert_count")),
        "n_used": keys.integer(_full("expert_used_count")),
        "expert_ff": keys.integer(_full("expert_feed_forward_length")),
        "shared_ff": keys.integer(_full("expert_shared_feed_forward_length")),
    }


def _ngrams(keys: Keys) -> dict:
    ngram_size = keys.integer(_full("ple.ngram_size"))
    return {
        "ple_layers": keys.integers(_full("ple.layers")),
        "ple_ngram_size": ngram_size,
        "ple_heads_per_ngram": keys.integer(_full("ple.heads_per_ngram")),
        "ple_head_dim": keys.integer(_full("embedding_length_per_layer_input")),
        "ple_conv_taps": keys.integer(_full("ple.conv_kernel")),
        "ple_dilation": keys.integer(_full("ple.conv_dilation"), ngram_size),
        "ple_eos_token_id": keys.integer(_full("ple.eos_token_id")),
        "ple_multipliers": keys.integers(_full("ple.layer_multipliers")),
        "ple_sizes": keys.integers(_full("ple.head_vocab_sizes")),
        "ple_offsets": keys.integers(_full("ple.head_offsets")),
    }


def _check_redundant_keys(keys: Keys, config: ModelConfig) -> None:
    """Keys that repeat what others say must agree with them."""
    expected = {
        "attention.value_length": config.head_dim,
        "ssm.inner_size": config.ssm_inner,
        "expert_shared_count": 1,
    }
    for name, value in expected.items():
        stored = keys.integer(_full(name), value)
        if stored != value:
            why = f"the other keys imply {value}"
            raise ModelFileError(f"key {_full(name)}={stored}", why, "convert the model again")
