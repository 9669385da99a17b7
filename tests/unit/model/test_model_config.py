"""A model's configuration: read from keys, checked, refused with the culprit's name."""

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

from strata.model.config_reader import read_config
from strata.model.files import open_model
from tests.unit.model import synthetic
from tests.unit.model.damage import refusal

REQUIRED = sorted(
    set(synthetic.keys_of(synthetic.TINY))
    - {
        "qwen4exp.attention.compress_ratios", "qwen4exp.attention.value_length", "qwen4exp.ssm.inner_size",
        "qwen4exp.expert_shared_count", "qwen4exp.ple.conv_dilation", "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
    }
)  # fmt: skip


@pytest.fixture
def model():
    """A model without tensors: reading a configuration needs none."""
    model = synthetic.build_with_draft(seed=1)
    model.tensors.clear()
    return model


def read(model, path):
    return read_config(open_model(model.write(path / "tiny.gguf")))


def test_every_field_comes_back_as_it_was_written(tmp_path, model):
    assert read(model, tmp_path) == model.config


def test_a_changed_key_changes_the_configuration(tmp_path, model):
    model.keys["qwen4exp.expert_used_count"] = 3
    changed = read(model, tmp_path)
    assert changed != model.config
    assert changed == dataclasses.replace(model.config, n_used=3)


def test_derived_widths_follow_from_the_fields():
    c = synthetic.TINY
    assert [c.is_qsa(layer) for layer in range(4)] == [False, False, False, True]
    assert (c.qsa_layers, c.gdn_layers) == ((3,), (0, 1, 2))
    assert [c.is_ple(layer) for layer in range(4)] == [False, True, False, False]
    assert (c.selection_width, c.residual_width, c.group_heads) == (8 + 4 - 1, 2 * 64, 2)
    assert (c.q_gate_width, c.attention_width, c.kv_width, c.indexer_width) == (128, 64, 32, 32)
    assert (c.ssm_qk_width, c.ssm_inner, c.ssm_channels) == (32, 64, 128)
    assert (c.n_ple_heads, c.ple_width, c.ple_rows, c.ple_history) == (4, 128, 311 + 109, 9)
    assert c.end_token_ids == (262, 264)


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_key_is_named(tmp_path, model, key):
    del model.keys[key]
    error = refusal(lambda: read(model, tmp_path))
    assert error.what == f"key {key}" and "lacks it" in error.why and "tiny.gguf" in error.why


@pytest.mark.parametrize(
    ("key", "value", "found", "expected"),
    [
        ("qwen4exp.block_count", "four", "text", "integer"),
        ("qwen4exp.block_count", [4], "integers", "integer"),
        ("qwen4exp.block_count", 4.0, "float", "integer"),
        ("qwen4exp.block_count", True, "boolean", "integer"),
        ("qwen4exp.rope.freq_base", 10000, "integer", "float"),
        ("qwen4exp.ple.layers", 1, "integer", "integers"),
        ("qwen4exp.ple.layer_multipliers", [1.0, 2.0, 3.0], "floats", "integers"),
        ("qwen4exp.nextn.draft_token_ids", ["a"], "texts", "integers"),
    ],
)
def test_a_key_of_the_wrong_kind_is_named_with_both_kinds(tmp_path, model, key, value, found, expected):
    model.keys[key] = value
    error = refusal(lambda: read(model, tmp_path))
    assert error.what == f"key {key}" and f"holds {found} where {expected} is expected" in error.why


@pytest.mark.parametrize(
    ("key", "value", "culprit", "reason"),
    [
        ("embedding_length", 250, "hidden=250", "multiple of 32"),
        ("embedding_length", 0, "hidden=0", "positive"),
        ("block_count", -1, "n_layers=-1", "positive"),
        ("block_count", 3, "n_layers=3", "no layer is sparse attention"),
        ("attention.layer_norm_rms_epsilon", 0.0, "rms_epsilon=0.0", "positive"),
        ("attention.layer_norm_rms_epsilon", math.nan, "rms_epsilon=nan", "positive"),
        ("rope.freq_base", math.inf, "rope_base=inf", "finite"),
        ("attention.head_count_kv", 3, "n_q_heads=4", "multiple of n_kv_heads=3"),
        ("attention.head_count", 3, "attention_width=48", "multiple of 32"),
        ("ssm.group_count", 3, "n_ssm_v_heads=4", "multiple of n_ssm_qk_heads=3"),
        ("rope.dimension_count", 7, "rope_dims=7", "even"),
        ("rope.dimension_count", 18, "rope_dims=18", "head_dim=16"),
        ("attention.indexer.key_length", 4, "rope_dims=8", "indexer head has only 4"),
        ("expert_used_count", 9, "n_used=9", "n_experts=8"),
        ("expert_feed_forward_length", 40, "expert_ff=40", "multiple of 32"),
        ("expert_shared_feed_forward_length", 40, "shared_ff=40", "multiple of 32"),
        ("embedding_length_per_layer_input", 16, "ple_head_dim=16", "multiple of 32"),
        ("ple.layers", [4], "ple_layers=(4,)", "the model has 4 layers"),
        ("ple.layers", [1, 2], "ple_layers=(1, 2)", "exactly one layer"),
        ("ple.ngram_size", 1, "ple_ngram_size=1", "2 tokens"),
        ("ple.layer_multipliers", [3, 5], "ple_multipliers=(3, 5)", "3 are needed"),
        ("ple.head_vocab_sizes", [3, 5, 7], "ple_sizes=(3, 5, 7)", "4 are needed"),
        ("ple.head_vocab_sizes", [3, 5, 7, 0], "ple_sizes=(3, 5, 7, 0)", "from 1 on"),
        ("ple.head_offsets", [0, 1], "ple_offsets=(0, 1)", "4 are needed"),
        ("ple.head_offsets", [0, 1, -2, 3], "ple_offsets=(0, 1, -2, 3)", "from 0 on"),
        ("ple.eos_token_id", 265, "ple_eos_token_id=265", "265 tokens"),
        ("nextn_predict_layers", 2, "n_draft_layers=2", "one draft layer"),
    ],
)
def test_a_value_that_no_formula_can_use_is_refused(tmp_path, model, key, value, culprit, reason):
    model.keys[f"qwen4exp.{key}"] = value
    error = refusal(lambda: read(model, tmp_path))
    assert error.what == culprit and reason in error.why


@pytest.mark.parametrize(
    ("key", "value", "implied"),
    [("attention.value_length", 32, 16), ("ssm.inner_size", 96, 64), ("expert_shared_count", 2, 1)],
)
def test_a_key_that_contradicts_the_others_is_refused(tmp_path, model, key, value, implied):
    model.keys[f"qwen4exp.{key}"] = value
    error = refusal(lambda: read(model, tmp_path))
    assert error.what == f"key qwen4exp.{key}={value}" and f"imply {implied}" in error.why


def test_an_end_token_outside_the_vocabulary_is_refused(tmp_path, model):
    model.keys["tokenizer.ggml.eos_token_id"] = 9999
    assert refusal(lambda: read(model, tmp_path)).what == "eos_token_id=9999"


def test_keys_with_defaults_may_be_absent(tmp_path, model):
    for key in ("attention.compress_ratios", "attention.value_length", "ssm.inner_size", "ple.conv_dilation"):
        del model.keys[f"qwen4exp.{key}"]
    del model.keys["tokenizer.ggml.eot_token_id"]
    assert read(model, tmp_path) == model.config


def test_the_dilation_defaults_to_the_ngram_size_and_is_else_read(tmp_path, model):
    model.keys["qwen4exp.ple.conv_dilation"] = 2
    assert read(model, tmp_path).ple_dilation == 2
    del model.keys["qwen4exp.ple.conv_dilation"]
    assert read(model, tmp_path).ple_dilation == model.config.ple_ngram_size == 3


def test_hash_constants_keep_all_64_bits(tmp_path, model):
    largest = 2**64 - 1
    model.keys["qwen4exp.ple.layer_multipliers"] = [largest, 2**63 + 1, 1]
    config = read(model, tmp_path)
    assert config.ple_multipliers == (largest, 2**63 + 1, 1)
    assert np.array(config.ple_multipliers, dtype=np.uint64)[0] == np.uint64(largest)


def test_indexer_tensors_beside_zero_ratios_are_refused_with_the_reason(tmp_path):
    model = synthetic.build(seed=2)
    model.keys["qwen4exp.attention.compress_ratios"] = [0, 0, 0, 0]
    error = refusal(lambda: read(model, tmp_path))
    assert error.what == "key qwen4exp.attention.compress_ratios"
    assert "all its entries are 0" in error.why and "indexer" in error.why and "dense" in error.why
    assert "write 4 at every 4th layer" in error.remedy


@pytest.mark.parametrize("ratios", [[0, 0, 4, 0], [0, 0, 0, 8], [0, 0, 0], [0, 0, 0, 4, 4], [0, 0, 0, 0]])
def test_ratios_that_contradict_the_layers_are_refused(tmp_path, ratios):
    model = synthetic.build(seed=2)
    model.tensors.clear()
    model.keys["qwen4exp.attention.compress_ratios"] = ratios
    error = refusal(lambda: read(model, tmp_path))
    assert error.what == f"key qwen4exp.attention.compress_ratios={ratios}" and "[0, 0, 0, 4]" in error.why


def test_a_ratio_for_the_draft_layer_may_follow(tmp_path, model):
    for extra in (0, 4):
        model.keys["qwen4exp.attention.compress_ratios"] = [0, 0, 0, 4, extra]
        assert read(model, tmp_path) == model.config


def test_reading_the_configuration_class_imports_no_compiler():
    code = "import strata.model.config, sys; print([m for m in sys.modules if m.split('.')[0] in ('numba', 'gguf')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_finding_files_imports_neither_gguf_nor_a_compiler():
    modules = "strata.model.files, strata.model.tokenizer, strata.model.chat, strata.model.profile_file"
    heavy = "('numba', 'gguf', 'tokenizers', 'jinja2')"
    code = f"import {modules}, sys; print([m for m in sys.modules if m.split('.')[0] in {heavy}])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
