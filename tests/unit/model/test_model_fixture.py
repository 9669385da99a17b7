"""The small trained model: its configuration, its weight types, its size."""

from collections import Counter

import numpy as np
import pytest

from strata.model.config_reader import read_config
from strata.model.describe import (
    expert_bytes,
    layer_bytes,
    tensors_of,
    token_bytes,
    token_parameters,
    total_bytes,
    total_parameters,
)
from strata.model.files import open_model
from strata.model.weights_loader import load_weights
from tests.unit.model.fixture_files import DRAFT, FOLDER, MAIN


@pytest.fixture(scope="module")
def files():
    return open_model(MAIN)


@pytest.fixture(scope="module")
def config(files):
    return read_config(files)


@pytest.fixture(scope="module")
def weights(files, config):
    return load_weights(files, config)


def test_the_draft_file_comes_along(files):
    assert files.paths == (MAIN, DRAFT)
    assert open_model(FOLDER).paths == open_model([MAIN, DRAFT]).paths == files.paths
    assert len(files.tensors) == 315 + 29


def test_the_configuration_is_the_documented_one(config):
    c = config
    assert (c.vocabulary, c.context_length, c.hidden) == (4096, 4096, 256)
    assert (c.n_layers, c.n_streams, c.low_rank) == (12, 4, 64)
    assert c.qsa_layers == (3, 7, 11) and c.ple_layers == (1,)
    assert (c.n_q_heads, c.n_kv_heads, c.head_dim, c.rope_base, c.rope_dims) == (6, 2, 64, 1e6, 16)
    assert (c.n_indexer_heads, c.indexer_dim, c.indexer_top_k, c.indexer_block) == (2, 32, 256, 4)
    assert c.selection_width == 259
    assert (c.ssm_state, c.n_ssm_qk_heads, c.n_ssm_v_heads, c.conv_taps) == (64, 2, 6, 4)
    assert (c.ssm_inner, c.ssm_channels) == (384, 640)
    assert (c.n_experts, c.n_used, c.expert_ff, c.shared_ff) == (64, 6, 64, 64)
    assert (c.ple_ngram_size, c.ple_heads_per_ngram, c.ple_head_dim) == (3, 4, 32)
    assert (c.ple_conv_taps, c.ple_dilation) == (4, 3)
    assert c.ple_multipliers == (23703573157769, 20109073645365, 8052911324071)
    assert c.ple_sizes == (20011, 20021, 20023, 20029, 20047, 20051, 20063, 20071)
    assert c.ple_offsets == tuple(np.cumsum((0, *c.ple_sizes[:-1])).tolist())
    assert (c.ple_rows, c.ple_width, c.ple_history) == (160316, 256, 9)
    assert (c.ple_eos_token_id, c.eos_token_id, c.eot_token_id, c.end_token_ids) == (4093, 4095, 4095, (4093, 4095))
    assert c.n_draft_layers == 1 and len(c.draft_token_ids) == 2048
    assert list(c.draft_token_ids) == sorted(set(c.draft_token_ids))
    assert np.float32(c.rms_epsilon) == np.float32(1e-6)


BANKS = {  # gate and up, down
    0: ("Q4_K", "Q8_0"), 1: ("IQ4_XS", "Q5_1"), 2: ("IQ3_S", "IQ4_NL"), 3: ("IQ3_XXS", "IQ4_NL"), 4: ("Q2_0", "Q2_0"),
    5: ("Q2_0", "IQ4_NL"), 6: ("IQ2_S", "Q2_0"), 7: ("Q3_K", "Q5_0"), 8: ("Q2_0", "Q2_0"), 9: ("IQ2_XS", "IQ4_NL"),
    10: ("Q5_K", "Q4_0"), 11: ("Q4_K", "Q5_1"),
}  # fmt: skip


def test_expert_types_are_the_documented_ones_per_layer(weights):
    for layer in weights.layers:
        moe = layer.moe
        assert (moe.gate.type_name, moe.down.type_name) == BANKS[layer.index] and moe.up.type_name == moe.gate.type_name


def test_other_types_are_the_documented_ones(weights):
    assert (weights.output.type_name, weights.token_embd.type_name) == ("Q5_K", "Q4_K")
    assert weights.per_layer_token_embd.type_name == "IQ4_NL" and weights.output_hc.down.type_name == "BF16"
    ple, draft = weights.layers[1].ple, weights.draft
    assert (ple.key.type_name, ple.value.type_name, ple.conv.type_name) == ("Q2_0", "BF16", "F16")
    assert (draft.moe.gate.type_name, draft.fc_hidden.type_name) == ("Q2_0", "Q8_0")
    qkv = {layer.index: layer.attention.qkv.type_name for layer in weights.layers if layer.index % 4 != 3}
    assert qkv == {index: "IQ4_XS" if index % 4 == 1 else "Q4_K" for index in qkv}
    quantised = Counter(tensor.type_name for tensor in tensors_of(weights) if tensor.is_quantised)
    assert len(quantised) == 14


def test_shapes_put_the_outermost_dimension_first(weights):
    assert weights.token_embd.shape == (4096, 256)
    assert weights.layers[0].moe.down.shape == (64, 256, 64) and weights.layers[0].moe.gate.shape == (64, 64, 256)
    assert weights.layers[0].attention.conv.shape == (640, 4) and weights.layers[1].ple.conv.shape == (1024, 4)
    assert weights.layers[3].attention.indexer.q.shape == (64, 256)


def test_small_vectors_come_as_floats_with_sensible_values(weights):
    for layer in weights.layers:
        norm = layer.attention_mixer.norm.floats()
        assert norm.shape == (1024,) and norm.dtype == np.float32 and np.all(np.isfinite(norm))
        if layer.index % 4 != 3:
            assert np.all(layer.attention.decay.floats() < 0)
    taps = weights.layers[1].ple.conv
    assert np.array_equal(taps.floats(), taps.as_uint16().view(np.float16).astype(np.float32))


def test_sizes_match_the_files(weights):
    assert total_parameters(weights) == 58_061_036
    table = weights.per_layer_token_embd.n_weights
    assert total_parameters(weights) - table == 52_930_924
    stored = MAIN.stat().st_size + DRAFT.stat().st_size
    assert 0 < stored - total_bytes(weights) < 200_000


def test_layer_bytes_split_into_dense_and_experts(weights):
    for layer in weights.layers:
        size = layer_bytes(layer)
        assert size.dense + 64 * size.expert == total_bytes(layer)
        assert size.expert == expert_bytes(layer.moe) == sum(
            bank.part(5).raw.size for bank in (layer.moe.gate, layer.moe.up, layer.moe.down)
        )
    assert layer_bytes(weights.layers[4]).expert == 3 * 64 * 256 // 64 * 18


def test_a_token_reads_its_share_of_the_experts_and_a_few_rows(weights, config):
    trunk = sum(layer_bytes(layer).dense + 6 * layer_bytes(layer).expert for layer in weights.layers)
    rows = 144 + 8 * 18
    assert token_bytes(weights, config) == trunk + rows + total_bytes(weights.output_hc) + weights.output.raw.size
    assert 13.4e6 < token_parameters(weights, config) < 13.7e6
