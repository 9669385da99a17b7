"""Tiny valid `qwen4exp` files with random weights, to be broken one thing at a time.

    model = synthetic.build(seed=1, types={"ffn_gate_exps": "Q2_0"})
    model.keys["qwen4exp.rope.dimension_count"] = 15
    path = model.write(tmp_path / "odd-rope.gguf")

`keys` and `tensors` are ordinary dictionaries: change, remove or add entries before writing.  Values are small and
finite, so that a written model can also be run.  Does not know: what a broken file must lead to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from strata.formats.gguf_types import register_missing_types
from strata.formats.table import by_name
from strata.model import names
from strata.model.config import ModelConfig
from strata.model.files import ARCHITECTURE
from strata.model.tokenizer import byte_characters
from tests.unit.model.encoded import encode

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("t h", "th e", "i n", "Ġ the", "o n", "Ġ a")

TINY = ModelConfig(
    vocabulary=256 + len(MERGES) + len(SPECIAL), context_length=128, hidden=64, n_layers=4, rms_epsilon=2.0**-20,
    n_streams=2, low_rank=16,
    qsa_interval=4, n_q_heads=4, n_kv_heads=2, head_dim=16, rope_base=10000.0, rope_dims=8,
    n_indexer_heads=2, indexer_dim=16, indexer_top_k=8, indexer_block=4,
    ssm_state=16, n_ssm_qk_heads=2, n_ssm_v_heads=4, conv_taps=4,
    n_experts=8, n_used=2, expert_ff=64, shared_ff=64,
    ple_layers=(1,), ple_ngram_size=3, ple_heads_per_ngram=2, ple_head_dim=32, ple_conv_taps=4, ple_dilation=3,
    ple_eos_token_id=262, ple_multipliers=(23703573157769, 20109073645365, 8052911324071),
    ple_sizes=(101, 103, 107, 109), ple_offsets=(0, 101, 204, 311),
    eos_token_id=264, eot_token_id=264, n_draft_layers=0, draft_token_ids=(),
)  # fmt: skip
"""A model of four layers, one of them sparse attention; k-quants and i-quants need `hidden` and `expert_ff` of 256."""

WITH_DRAFT = replace(TINY, n_draft_layers=1, draft_token_ids=tuple(range(0, 80, 2)))
"""The same with a draft layer."""

TYPES = {
    "_norm": "F32", "ssm_a": "F32", "ssm_dt": "F32", "conv1d": "F32", "ple_norm": "F32", "hnorm": "F32", "enorm": "F32",
    "hc_": "BF16", "alpha": "BF16", "beta": "BF16", "indexer": "BF16", "gate_inp": "BF16", "ple_value": "BF16",
    "": "Q8_0",
}  # fmt: skip
"""Default weight types: the first fragment that a tensor's name contains decides."""


@dataclass
class SyntheticModel:
    """A model before it is written: keys as python values, tensors as (shape, type, encoded bytes)."""

    config: ModelConfig
    keys: dict[str, Any]
    tensors: dict[str, tuple[tuple[int, ...], str, np.ndarray]] = field(default_factory=dict)

    def write(self, path: Path, only: str | None = None) -> Path:
        """Write a GGUF file and return its path; `only` keeps the tensors whose names contain it."""
        register_missing_types()
        writer = gguf.GGUFWriter(path, self.keys.get("general.architecture", ARCHITECTURE))
        for name, value in self.keys.items():
            if name != "general.architecture":
                _add_key(writer, name, value)
        for name, (shape, type_name, raw) in self.tensors.items():
            if only is None or only in name:
                kind = gguf.GGMLQuantizationType(by_name(type_name).type_id)
                writer.add_tensor(name, raw.reshape(*shape[:-1], -1), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def rename(self, old: str, new: str) -> None:
        """Give a tensor another name."""
        self.tensors[new] = self.tensors.pop(old)

    def reshape(self, name: str, shape: tuple[int, ...]) -> None:
        """Replace a tensor by one of another shape."""
        _, type_name, _ = self.tensors[name]
        self.add(name, shape, type_name)

    def add(self, name: str, shape: tuple[int, ...], type_name: str, seed: int = 0) -> None:
        """Add or replace a tensor with random weights."""
        self.tensors[name] = (shape, type_name, encode(_values(name, shape, seed), type_name, seed))


def build(
    seed: int = 0, types: Mapping[str, str] | None = None, config: ModelConfig = TINY, **changes
) -> SyntheticModel:
    """A valid model: `changes` are fields of `config`, `types` map name fragments to weight types."""
    config = replace(config, **changes)
    model = SyntheticModel(config, keys_of(config))
    for number, (name, entry) in enumerate(tensor_names(config).items()):
        fragments = {**(types or {}), **TYPES}
        type_name = next(kind for fragment, kind in fragments.items() if fragment in name)
        model.add(name, entry.shape(config), type_name, seed=1000 * seed + number)
    return model


def build_with_draft(seed: int = 0, **changes) -> SyntheticModel:
    """A valid model with its draft layer in the same file."""
    return build(seed, **{"config": WITH_DRAFT, **changes})


def tensor_names(config: ModelConfig) -> dict[str, names.Entry]:
    """Every tensor name of a model with its table entry."""
    found = {entry.name: entry for entry in (*names.TOP, *names.OUTPUT_MIXER)}
    for layer in range(config.n_layers + config.n_draft_layers):
        for entry in _layer_entries(config, layer):
            found[names.layer_name(layer, entry.name)] = entry
    return found


def _layer_entries(config: ModelConfig, layer: int) -> tuple[names.Entry, ...]:
    common = (*names.ATTENTION_MIXER, *names.MOE_MIXER, *names.MOE)
    if layer == config.n_layers:
        return (*common, *names.ATTENTION, *names.DRAFT, *names.DRAFT_OUTPUT_MIXER)
    attention = (*names.ATTENTION, *names.INDEXER) if config.is_qsa(layer) else names.GDN
    return (*common, *attention, *(names.PLE if config.is_ple(layer) else ()))


def keys_of(config: ModelConfig) -> dict[str, Any]:
    """The keys that describe a configuration, tokenizer included."""
    c = config
    own = {
        "vocab_size": c.vocabulary, "context_length": c.context_length, "embedding_length": c.hidden,
        "block_count": c.n_layers, "attention.layer_norm_rms_epsilon": c.rms_epsilon,
        "hyper_connection.count": c.n_streams, "hyper_connection.low_rank": c.low_rank,
        "full_attention_interval": c.qsa_interval,
        "attention.compress_ratios": [c.indexer_block if c.is_qsa(layer) else 0 for layer in range(c.n_layers)],
        "attention.head_count": c.n_q_heads, "attention.head_count_kv": c.n_kv_heads,
        "attention.key_length": c.head_dim, "attention.value_length": c.head_dim,
        "rope.freq_base": c.rope_base, "rope.dimension_count": c.rope_dims,
        "attention.indexer.head_count": c.n_indexer_heads, "attention.indexer.key_length": c.indexer_dim,
        "attention.indexer.top_k": c.indexer_top_k, "attention.indexer.block_size": c.indexer_block,
        "ssm.state_size": c.ssm_state, "ssm.group_count": c.n_ssm_qk_heads, "ssm.time_step_rank": c.n_ssm_v_heads,
        "ssm.inner_size": c.ssm_inner, "ssm.conv_kernel": c.conv_taps,
        "expert_count": c.n_experts, "expert_used_count": c.n_used, "expert_feed_forward_length": c.expert_ff,
        "expert_shared_feed_forward_length": c.shared_ff, "expert_shared_count": 1,
        "ple.layers": list(c.ple_layers), "ple.ngram_size": c.ple_ngram_size,
        "ple.heads_per_ngram": c.ple_heads_per_ngram, "embedding_length_per_layer_input": c.ple_head_dim,
        "ple.conv_kernel": c.ple_conv_taps, "ple.conv_dilation": c.ple_dilation,
        "ple.eos_token_id": c.ple_eos_token_id, "ple.layer_multipliers": list(c.ple_multipliers),
        "ple.head_vocab_sizes": list(c.ple_sizes), "ple.head_offsets": list(c.ple_offsets),
    }  # fmt: skip
    if c.n_draft_layers:
        own |= {"nextn_predict_layers": c.n_draft_layers, "nextn.draft_token_ids": list(c.draft_token_ids)}
    return {f"{ARCHITECTURE}.{name}": value for name, value in own.items()} | _tokenizer_keys(config)


def _tokenizer_keys(config: ModelConfig) -> dict[str, Any]:
    tokens = [*byte_characters(), *(merge.replace(" ", "") for merge in MERGES)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*tokens, *SPECIAL],
        "tokenizer.ggml.token_type": [1] * len(tokens) + [3] * len(SPECIAL),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.eos_token_id": config.eos_token_id,
        "tokenizer.ggml.eot_token_id": config.eot_token_id,
    }


def _values(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random weights of a size that keeps a model's activations near one."""
    draw = np.random.default_rng([seed, len(name)]).standard_normal(shape, dtype=np.float32)
    if name.endswith("ssm_a"):
        return -np.abs(draw) - np.float32(0.1)
    if len(shape) == 1 and "norm" in name:
        return np.float32(1) + np.float32(0.1) * draw
    return draw / np.float32(np.sqrt(shape[-1]))


def _add_key(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    kinds = gguf.GGUFValueType
    if isinstance(value, list):
        item = value[0] if value else 0
        large = isinstance(item, int) and max(value, default=0) > 0x7FFFFFFF
        writer.add_key_value(name, value, kinds.ARRAY, sub_type=kinds.UINT64 if large else _scalar(item))
    else:
        writer.add_key_value(name, value, _scalar(value))


def _scalar(value: Any) -> gguf.GGUFValueType:
    kinds = gguf.GGUFValueType
    if isinstance(value, bool):
        return kinds.BOOL
    if isinstance(value, int):
        return kinds.INT32
    return kinds.FLOAT32 if isinstance(value, float) else kinds.STRING
