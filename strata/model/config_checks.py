"""What a configuration must satisfy before anything is computed with it.

Each rule names the field, its value and the reason.  Raises ModelFileError; returns nothing.  Does not know: where the
values came from.
"""

import math
from collections.abc import Iterable
from dataclasses import fields

from strata.errors import ModelFileError
from strata.model.config import ModelConfig
from strata.model.files import ARCHITECTURE, ModelFiles

GROUP = 32
"""Activations are coded per 32 values, so every quantised row must hold a multiple of that."""

LARGEST_WORD = 1 << 64


def check_config(config: ModelConfig) -> None:
    """Refuse a configuration that the model's formulas cannot be computed with."""
    for checks in (_positive, _groups, _heads, _ngram_table, _tokens):
        for name, value, holds, why in checks(config):
            if not holds:
                raise ModelFileError(f"{name}={value}", why, f"use an {ARCHITECTURE} file whose keys are sound")


_Checks = Iterable[tuple[str, object, bool, str]]


def _positive(config: ModelConfig) -> _Checks:
    may_be_zero = {"ple_eos_token_id", "eos_token_id", "eot_token_id", "n_draft_layers"}
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, (int, float)) and field.name not in may_be_zero:
            yield field.name, value, 0 < value < math.inf, "it must be positive and finite"


def _groups(config: ModelConfig) -> _Checks:
    for name in ("hidden", "attention_width", "ssm_inner", "expert_ff", "shared_ff", "ple_head_dim"):
        value = getattr(config, name)
        yield name, value, value % GROUP == 0, f"quantised rows of it must be a multiple of {GROUP} long"


def _heads(config: ModelConfig) -> _Checks:
    c = config
    enough = c.n_layers >= c.qsa_interval
    yield "n_layers", c.n_layers, enough, f"no layer is sparse attention (every {c.qsa_interval}th is)"
    whole = c.n_q_heads % c.n_kv_heads == 0
    yield "n_q_heads", c.n_q_heads, whole, f"it is not a multiple of n_kv_heads={c.n_kv_heads}"
    whole = c.n_ssm_v_heads % c.n_ssm_qk_heads == 0
    yield "n_ssm_v_heads", c.n_ssm_v_heads, whole, f"it is not a multiple of n_ssm_qk_heads={c.n_ssm_qk_heads}"
    yield "rope_dims", c.rope_dims, c.rope_dims % 2 == 0, "dimensions are turned in pairs, so it must be even"
    yield "rope_dims", c.rope_dims, c.rope_dims <= c.head_dim, f"a head has only head_dim={c.head_dim} dimensions"
    yield "rope_dims", c.rope_dims, c.rope_dims <= c.indexer_dim, f"an indexer head has only {c.indexer_dim} dimensions"
    yield "n_used", c.n_used, c.n_used <= c.n_experts, f"there are only n_experts={c.n_experts}"
    yield "n_draft_layers", c.n_draft_layers, 0 <= c.n_draft_layers <= 1, "one draft layer at most is supported"


def _ngram_table(config: ModelConfig) -> _Checks:
    c = config
    yield "ple_layers", c.ple_layers, len(c.ple_layers) == 1, "exactly one layer can take the n-gram table"
    yield "ple_layers", c.ple_layers, 0 <= c.ple_layers[0] < c.n_layers, f"the model has {c.n_layers} layers"
    yield "ple_ngram_size", c.ple_ngram_size, c.ple_ngram_size >= 2, "the shortest n-gram has 2 tokens"
    count = len(c.ple_multipliers)
    yield "ple_multipliers", c.ple_multipliers, count == c.ple_ngram_size, f"{c.ple_ngram_size} are needed, one a token"
    for name in ("ple_sizes", "ple_offsets"):
        value = getattr(c, name)
        yield name, value, len(value) == c.n_ple_heads, f"{c.n_ple_heads} are needed, one a head"
    for name, least in (("ple_multipliers", 0), ("ple_sizes", 1), ("ple_offsets", 0)):
        value = getattr(c, name)
        holds = all(least <= item < LARGEST_WORD for item in value)
        yield name, value, holds, f"entries must be unsigned 64-bit numbers from {least} on"


def _tokens(config: ModelConfig) -> _Checks:
    for name in ("ple_eos_token_id", "eos_token_id", "eot_token_id"):
        value = getattr(config, name)
        yield name, value, 0 <= value < config.vocabulary, f"the vocabulary has {config.vocabulary} tokens"


def check_compress_ratios(files: ModelFiles, config: ModelConfig) -> None:
    """The stored ratios must be the indexer's block size at sparse-attention layers and 0 elsewhere.

    A converter that reads a normalised configuration writes zeros beside the indexer's tensors; such a file would
    silently run with dense attention elsewhere, and is refused.
    """
    name = f"{ARCHITECTURE}.attention.compress_ratios"
    expected = tuple(config.indexer_block if config.is_qsa(layer) else 0 for layer in range(config.n_layers))
    stored = files.keys.integers(name, expected)
    if not any(stored) and any(".indexer." in tensor for tensor in files.tensors):
        raise ModelFileError(
            f"key {name}",
            "all its entries are 0 although the file holds indexer tensors, so its sparse attention would run dense",
            f"convert the model again, or write {config.indexer_block} at every {config.qsa_interval}th layer",
        )
    if stored[: config.n_layers] != expected or any(stored[config.n_layers + config.n_draft_layers :]):
        raise ModelFileError(
            f"key {name}={list(stored)}", f"the other keys imply {list(expected)}", "convert the model again"
        )
