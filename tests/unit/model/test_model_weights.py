"""Sorting tensors into the tree: everything is read once, nothing is left over."""

from dataclasses import replace

import numpy as np
import pytest

from strata.model import names
from strata.model.config_reader import read_config
from strata.model.describe import tensors_of
from strata.model.files import open_model
from strata.model.weights import GdnWeights, QsaWeights
from strata.model.weights_loader import load_weights
from tests.unit.model import synthetic
from tests.unit.model.damage import refusal


def load(model, folder):
    files = open_model(model.write(folder / "tiny.gguf"))
    return load_weights(files, read_config(files))


def test_every_tensor_of_a_model_stands_once_in_the_tree(tmp_path):
    model = synthetic.build_with_draft(seed=1)
    found = [tensor.name for tensor in tensors_of(load(model, tmp_path))]
    assert sorted(found) == sorted(model.tensors) and len(found) == len(set(found))


def test_fields_hold_the_tensors_that_the_tables_name(tmp_path):
    model = synthetic.build_with_draft(seed=1)
    weights = load(model, tmp_path)
    assert weights.token_embd.name == "token_embd.weight" and weights.output.name == "output.weight"
    assert weights.output_hc.norm.name == "output_hc_norm.weight" and weights.output_hc.inject is None
    assert weights.per_layer_token_embd.name == "per_layer_token_embd.weight"
    assert [type(layer.attention) for layer in weights.layers] == [GdnWeights, GdnWeights, GdnWeights, QsaWeights]
    assert [layer.ple is not None for layer in weights.layers] == [False, True, False, False]
    assert [layer.index for layer in weights.layers] == [0, 1, 2, 3]
    gdn, qsa = weights.layers[0].attention, weights.layers[3].attention
    assert (gdn.decay.name, gdn.dt_bias.name) == ("blk.0.ssm_a", "blk.0.ssm_dt.bias")
    assert (gdn.qkv.shape, gdn.conv.shape) == ((128, 64), (128, 4))
    assert qsa.indexer.q.name == "blk.3.indexer.q_proj.weight"
    assert weights.layers[2].moe.down.shape == (8, 64, 64)
    assert weights.layers[1].ple.conv.shape == (128, 4)
    assert weights.draft.attention.q.name == "blk.4.attn_q.weight" and weights.draft.attention.indexer is None
    assert weights.draft.output_mixer.up.name == "blk.4.nextn.hc_up.weight"


def test_a_model_without_draft_layer_has_none(tmp_path):
    assert load(synthetic.build(seed=1), tmp_path).draft is None


EVERY_NAME = sorted(synthetic.tensor_names(synthetic.WITH_DRAFT))


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A sound model, opened once; tests change copies of its table of tensors."""
    return open_model(synthetic.build_with_draft(seed=1).write(tmp_path_factory.mktemp("opened") / "tiny.gguf"))


def load_changed(files, changes):
    """Load a model whose tensors are changed by name; None removes one."""
    tensors = {**files.tensors, **changes}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    return load_weights(replace(files, tensors=kept), read_config(files))


def test_each_missing_tensor_is_named(opened):
    for name in EVERY_NAME:
        error = refusal(lambda name=name: load_changed(opened, {name: None}))
        assert error.what == f"tensor {name}" and "tiny.gguf lacks it" in error.why, name


@pytest.mark.parametrize("axis", [0, -1])
def test_each_wrong_shape_is_named_with_the_expected_one(opened, axis):
    for name in EVERY_NAME:
        tensor = opened.tensors[name]
        wrong = list(tensor.shape)
        wrong[axis] -= 1
        changed = {name: replace(tensor, shape=tuple(wrong))}
        error = refusal(lambda changed=changed: load_changed(opened, changed))
        assert error.what == f"tensor {name} of shape {wrong}" and f"imply {list(tensor.shape)}" in error.why, name


def test_another_number_of_dimensions_is_a_wrong_shape(tmp_path):
    model = synthetic.build(seed=1)
    model.reshape("blk.0.attn_gate.weight", (1, 64, 64))
    assert "[1, 64, 64]" in refusal(lambda: load(model, tmp_path)).what


def test_stream_norms_may_be_stored_per_stream(tmp_path):
    model = synthetic.build(seed=1)
    for name in ("output_hc_norm.weight", "blk.2.hc_ffn_norm.weight", "blk.1.ple_norm_key.weight"):
        _, type_name, raw = model.tensors[name]
        model.tensors[name] = ((2, 64), type_name, raw)
    weights = load(model, tmp_path)
    assert weights.output_hc.norm.shape == weights.layers[1].ple.norm_key.shape == (128,)


def test_an_ngram_table_may_be_padded_but_not_short(tmp_path):
    model = synthetic.build(seed=1)
    model.reshape("per_layer_token_embd.weight", (512, 32))
    assert load(model, tmp_path).per_layer_token_embd.shape == (512, 32)
    model.reshape("per_layer_token_embd.weight", (419, 32))
    assert "imply [420, 32]" in refusal(lambda: load(model, tmp_path)).why


@pytest.mark.parametrize(
    "name",
    ["blk.0.extra.weight", "blk.7.attn_q.weight", "rope_freqs.weight", "blk.0.attn_q.weight", "blk.2.ple_key.weight"],
)
def test_a_tensor_that_nothing_reads_is_refused_by_name(tmp_path, name):
    model = synthetic.build(seed=1)
    model.add(name, (64, 64), "F32")
    error = refusal(lambda: load(model, tmp_path))
    assert error.what == f"tensor {name}" and "nothing in the model reads it" in error.why


def test_many_leftovers_are_counted(tmp_path):
    model = synthetic.build(seed=1)
    for number in range(5):
        model.add(f"extra.{number}", (4,), "F32")
    assert refusal(lambda: load(model, tmp_path)).what == "tensor extra.0, extra.1, extra.2 and 2 more"


def test_a_draft_layer_without_its_key_is_left_over(tmp_path):
    model = synthetic.build_with_draft(seed=1)
    del model.keys["qwen4exp.nextn_predict_layers"]
    error = refusal(lambda: load(model, tmp_path))
    assert "blk.4." in error.what and "n_draft_layers=0" in error.why


@pytest.mark.parametrize("name", ["blk.0.ssm_norm.weight", "blk.3.attn_q_norm.weight", "output_hc_norm.weight"])
def test_a_vector_in_a_block_format_is_refused(tmp_path, name):
    model = synthetic.build(seed=1, ssm_state=32, head_dim=32)
    shape, *_ = model.tensors[name]
    model.add(name, shape, "Q8_0")
    error = refusal(lambda: load(model, tmp_path))
    assert error.what == f"tensor {name} of type Q8_0" and "floats" in error.why


def test_any_weight_type_may_stand_anywhere_else(tmp_path):
    types = {
        "attn_output": "Q4_0", "ffn_gate_exps": "IQ3_S", "ffn_up_exps": "IQ2_XXS", "ffn_down_exps": "Q2_0",
        "per_layer": "IQ4_NL", "output.weight": "Q6_K", "attn_qkv": "IQ4_XS", "attn_gate": "Q3_K", "token_embd": "Q4_K",
        "up_shexp": "Q5_K", "ple_key": "IQ1_M", "hc_attn_down": "F32", "ssm_out": "Q5_1",
        "attn_q.": "IQ2_S", "attn_k.": "IQ2_XS",
        "attn_v.": "IQ3_XXS", "indexer.q_proj": "F16", "gate_inp": "BF16", "ssm_alpha": "Q5_0",
    }  # fmt: skip
    wide = {"hidden": 256, "expert_ff": 256, "shared_ff": 256, "ple_head_dim": 64, "head_dim": 64}
    model = synthetic.build(seed=1, types=types, **wide)
    weights = load(model, tmp_path)
    stored = {tensor.type_name for tensor in tensors_of(weights)}
    assert stored >= {*types.values(), "Q8_0"} and len(stored) == 20
    for tensor in tensors_of(weights):
        assert np.array_equal(tensor.raw, model.tensors[tensor.name][2])


DIALECTS = {
    "mtp": {
        "blk.4.nextn.hnorm.weight": "mtp.pre_fc_norm_hidden.weight",
        "blk.4.nextn.enorm.weight": "mtp.pre_fc_norm_embedding.weight",
        "blk.4.nextn.fc_hidden.weight": "mtp.fc_hidden.weight",
        "blk.4.nextn.fc_embedding.weight": "mtp.fc_embedding.weight",
        "blk.4.nextn.hc_norm.weight": "mtp.hc_norm.weight",
        "blk.4.nextn.hc_down.weight": "mtp.hc_down.weight",
        "blk.4.nextn.hc_up.weight": "mtp.hc_up.weight",
    },
    "mtp mixer": {
        "blk.4.nextn.hc_norm.weight": "mtp.hyper_connection_mixer.hc_norm.weight",
        "blk.4.nextn.hc_down.weight": "mtp.hyper_connection_mixer.input_mix_weight_down.weight",
        "blk.4.nextn.hc_up.weight": "mtp.hyper_connection_mixer.input_mix_weight_up.weight",
        "blk.4.attn_q.weight": "mtp.layers.0.attn_q.weight",
        "blk.4.ffn_up_exps.weight": "mtp.0.ffn_up_exps.weight",
    },
    "head": {
        "blk.4.nextn.fc_embedding.weight": "blk.4.nextn.fc_embd.weight",
        "blk.4.nextn.hc_norm.weight": "blk.4.nextn.hc_head_norm.weight",
        "blk.4.nextn.hc_down.weight": "blk.4.nextn.hc_head_down.weight",
        "blk.4.nextn.hc_up.weight": "blk.4.nextn.hc_head_up.weight",
    },
}


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_draft_layers_of_every_dialect_give_the_same_tree(tmp_path, dialect):
    model = synthetic.build_with_draft(seed=1)
    (tmp_path / "plain").mkdir()
    plain = load(model, tmp_path / "plain")
    for usual, other in DIALECTS[dialect].items():
        model.rename(usual, other)
    renamed = load(model, tmp_path)
    pairs = list(zip(tensors_of(plain), tensors_of(renamed), strict=True))
    assert all(a.shape == b.shape and np.array_equal(a.raw, b.raw) for a, b in pairs)
    assert {a.name: b.name for a, b in pairs if a.name != b.name} == DIALECTS[dialect]


def test_one_tensor_under_two_spellings_is_refused(tmp_path):
    model = synthetic.build_with_draft(seed=1)
    model.add("mtp.fc_hidden.weight", (64, 64), "F32")
    error = refusal(lambda: load(model, tmp_path))
    assert "mtp.fc_hidden.weight" in error.what and "nextn.fc_hidden.weight is the same tensor" in error.why


@pytest.mark.parametrize("type_name", ["Q8_0", "BF16", "Q2_0"])
def test_a_fused_draft_projection_is_split_into_its_halves(tmp_path, type_name):
    model = synthetic.build_with_draft(seed=1, types={"fc_": type_name})
    names_apart = ["blk.4.nextn.fc_embedding.weight", "blk.4.nextn.fc_hidden.weight"]
    apart = [model.tensors.pop(name)[2] for name in names_apart]
    rows = np.concatenate([raw.reshape(64, -1) for raw in apart], axis=1)
    model.tensors["blk.4.nextn.eh_proj.weight"] = ((64, 128), type_name, rows.reshape(-1))
    draft = load(model, tmp_path).draft
    for tensor, raw in zip((draft.fc_embedding, draft.fc_hidden), apart, strict=True):
        assert tensor.shape == (64, 64) and np.array_equal(tensor.raw, raw)
    assert not np.array_equal(draft.fc_embedding.raw, draft.fc_hidden.raw)


def test_a_fused_draft_projection_that_cannot_be_halved_is_refused(tmp_path):
    model = synthetic.build_with_draft(seed=1)
    for name in ("blk.4.nextn.fc_embedding.weight", "blk.4.nextn.fc_hidden.weight"):
        del model.tensors[name]
    model.add("blk.4.nextn.eh_proj.weight", (64, 96), "Q8_0")
    error = refusal(lambda: load(model, tmp_path))
    assert "eh_proj" in error.what and "[64, 96]" in error.what and "halves of 64" in error.why


def test_a_draft_layer_may_bring_an_indexer_but_not_half_of_one(tmp_path):
    model = synthetic.build_with_draft(seed=1)
    for entry in names.INDEXER:
        model.add(f"blk.4.{entry.name}", entry.shape(model.config), "F32")
    assert load(model, tmp_path).draft.attention.indexer.k.name == "blk.4.indexer.k_proj.weight"
    del model.tensors["blk.4.indexer.k_proj.weight"]
    assert refusal(lambda: load(model, tmp_path)).what == "tensor blk.4.indexer.k_proj.weight"
