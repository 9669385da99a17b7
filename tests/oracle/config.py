"""The numbers of a model, read from its GGUF keys (without the architecture's prefix).

Does not know: tensors.  A key that is missing is a KeyError with its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NgramConfig:
    """The n-gram table's numbers; `layers` are the layers it enters."""

    layers: tuple[int, ...]
    heads_per_ngram: int
    multipliers: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    kernel: int
    dilation: int
    end_token: int


@dataclass(frozen=True, slots=True)
class OracleConfig:
    """Counts and sizes of the trunk and the draft layer."""

    n_layers: int
    width: int
    n_streams: int
    eps: float
    sparse_interval: int
    n_query_heads: int
    n_kv_heads: int
    head_size: int
    rope_base: float
    rope_dims: int
    n_index_heads: int
    index_size: int
    index_block: int
    selected_width: int
    state_size: int
    n_key_heads: int
    n_value_heads: int
    conv_kernel: int
    n_experts_used: int
    ngram: NgramConfig | None
    draft_ids: tuple[int, ...]

    def is_sparse(self, layer: int) -> bool:
        """Tell whether `layer` is sparse attention (otherwise it is a gated delta network)."""
        return layer % self.sparse_interval == self.sparse_interval - 1


def ngram_config(keys: Mapping) -> NgramConfig | None:
    """Read the n-gram table's keys; None when the model has no table."""
    if not keys.get("ple.layers"):
        return None
    return NgramConfig(
        layers=tuple(keys["ple.layers"]),
        heads_per_ngram=keys["ple.heads_per_ngram"],
        multipliers=tuple(keys["ple.layer_multipliers"][: keys["ple.ngram_size"]]),
        sizes=tuple(keys["ple.head_vocab_sizes"]),
        offsets=tuple(keys["ple.head_offsets"]),
        kernel=keys["ple.conv_kernel"],
        dilation=keys.get("ple.conv_dilation", keys["ple.ngram_size"]),
        end_token=keys["ple.eos_token_id"],
    )


def read_config(keys: Mapping) -> OracleConfig:
    """Read all keys of a model file."""
    block = keys["attention.indexer.block_size"]
    return OracleConfig(
        n_layers=keys["block_count"],
        width=keys["embedding_length"],
        n_streams=keys["hyper_connection.count"],
        eps=keys["attention.layer_norm_rms_epsilon"],
        sparse_interval=keys["full_attention_interval"],
        n_query_heads=keys["attention.head_count"],
        n_kv_heads=keys["attention.head_count_kv"],
        head_size=keys["attention.key_length"],
        rope_base=keys["rope.freq_base"],
        rope_dims=keys["rope.dimension_count"],
        n_index_heads=keys["attention.indexer.head_count"],
        index_size=keys["attention.indexer.key_length"],
        index_block=block,
        selected_width=keys["attention.indexer.top_k"] + block - 1,
        state_size=keys["ssm.state_size"],
        n_key_heads=keys["ssm.group_count"],
        n_value_heads=keys["ssm.time_step_rank"],
        conv_kernel=keys["ssm.conv_kernel"],
        n_experts_used=keys["expert_used_count"],
        ngram=ngram_config(keys),
        draft_ids=tuple(keys.get("nextn.draft_token_ids", ())),
    )
