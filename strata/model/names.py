"""Tensor names of the architecture: one line a tensor, with its field, its name in a layer and its shape.

A shape is a tuple of `ModelConfig` attribute names, outermost dimension first.  Layer tensors are called
`blk.<layer>.<name>`; the draft layer is the layer after the trunk's last.  Draft layers come in several dialects, which
`canonical_name` maps onto one.  Does not know: files, weight types.
"""

from dataclasses import dataclass

from strata.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a group: the dataclass field it fills, its name, its shape in `ModelConfig` attributes."""

    field: str
    name: str
    dimensions: tuple[str, ...]

    def shape(self, config: ModelConfig) -> tuple[int, ...]:
        return tuple(getattr(config, dimension) for dimension in self.dimensions)


def _group(*lines: tuple[str, ...]) -> tuple[Entry, ...]:
    return tuple(Entry(field, name, tuple(dimensions)) for field, name, *dimensions in lines)


def _mixer(prefix: str, *, has_inject: bool) -> tuple[Entry, ...]:
    lines = [
        ("norm", f"{prefix}_norm.weight", "residual_width"),
        ("down", f"{prefix}_down.weight", "low_rank", "residual_width"),
        ("up", f"{prefix}_up.weight", "residual_width", "low_rank"),
    ]
    if has_inject:
        lines.append(("inject", f"{prefix}_inject.weight", "n_streams", "residual_width"))
    return _group(*lines)


TOP = _group(
    ("token_embd", "token_embd.weight", "vocabulary", "hidden"),
    ("output", "output.weight", "vocabulary", "hidden"),
    ("per_layer_token_embd", "per_layer_token_embd.weight", "ple_rows", "ple_head_dim"),
)
OUTPUT_MIXER = _mixer("output_hc", has_inject=False)

ATTENTION_MIXER = _mixer("hc_attn", has_inject=True)
MOE_MIXER = _mixer("hc_ffn", has_inject=True)

GDN = _group(
    ("qkv", "attn_qkv.weight", "ssm_channels", "hidden"),
    ("gate", "attn_gate.weight", "ssm_inner", "hidden"),
    ("conv", "ssm_conv1d.weight", "ssm_channels", "conv_taps"),
    ("alpha", "ssm_alpha.weight", "n_ssm_v_heads", "hidden"),
    ("beta", "ssm_beta.weight", "n_ssm_v_heads", "hidden"),
    ("decay", "ssm_a", "n_ssm_v_heads"),
    ("dt_bias", "ssm_dt.bias", "n_ssm_v_heads"),
    ("norm", "ssm_norm.weight", "ssm_state"),
    ("output", "ssm_out.weight", "hidden", "ssm_inner"),
)

ATTENTION = _group(
    ("q", "attn_q.weight", "q_gate_width", "hidden"),
    ("k", "attn_k.weight", "kv_width", "hidden"),
    ("v", "attn_v.weight", "kv_width", "hidden"),
    ("q_norm", "attn_q_norm.weight", "head_dim"),
    ("k_norm", "attn_k_norm.weight", "head_dim"),
    ("output", "attn_output.weight", "hidden", "attention_width"),
)

INDEXER = _group(
    ("q", "indexer.q_proj.weight", "indexer_width", "hidden"),
    ("k", "indexer.k_proj.weight", "indexer_dim", "hidden"),
    ("q_norm", "indexer.q_norm.weight", "indexer_dim"),
    ("k_norm", "indexer.k_norm.weight", "indexer_dim"),
)

MOE = _group(
    ("router", "ffn_gate_inp.weight", "n_experts", "hidden"),
    ("gate", "ffn_gate_exps.weight", "n_experts", "expert_ff", "hidden"),
    ("up", "ffn_up_exps.weight", "n_experts", "expert_ff", "hidden"),
    ("down", "ffn_down_exps.weight", "n_experts", "hidden", "expert_ff"),
    ("shared_router", "ffn_gate_inp_shexp.weight", "hidden"),
    ("shared_gate", "ffn_gate_shexp.weight", "shared_ff", "hidden"),
    ("shared_up", "ffn_up_shexp.weight", "shared_ff", "hidden"),
    ("shared_down", "ffn_down_shexp.weight", "hidden", "shared_ff"),
)

PLE = _group(
    ("key", "ple_key.weight", "residual_width", "ple_width"),
    ("value", "ple_value.weight", "hidden", "ple_width"),
    ("norm_key", "ple_norm_key.weight", "residual_width"),
    ("norm_query", "ple_norm_query.weight", "residual_width"),
    ("norm_conv", "ple_norm_conv.weight", "residual_width"),
    ("conv", "ple_conv1d.weight", "residual_width", "ple_conv_taps"),
)

DRAFT = _group(
    ("hidden_norm", "nextn.hnorm.weight", "residual_width"),
    ("embedding_norm", "nextn.enorm.weight", "hidden"),
    ("fc_hidden", "nextn.fc_hidden.weight", "hidden", "hidden"),
    ("fc_embedding", "nextn.fc_embedding.weight", "hidden", "hidden"),
)
DRAFT_OUTPUT_MIXER = _mixer("nextn.hc", has_inject=False)

FUSED_DRAFT_INPUT = "nextn.eh_proj.weight"
"""[hidden, 2 hidden]: `fc_embedding` in the first half of every row, `fc_hidden` in the second."""

AT_LEAST = frozenset({"ple_rows"})
"""Dimensions that a file may exceed: an n-gram table can be padded."""

_DRAFT_ALIASES = {
    "mtp.pre_fc_norm_hidden.weight": "nextn.hnorm.weight",
    "mtp.pre_fc_norm_embedding.weight": "nextn.enorm.weight",
    "mtp.fc_hidden.weight": "nextn.fc_hidden.weight",
    "mtp.fc_embedding.weight": "nextn.fc_embedding.weight",
    "mtp.eh_proj.weight": FUSED_DRAFT_INPUT,
    "mtp.hc_norm.weight": "nextn.hc_norm.weight",
    "mtp.hc_down.weight": "nextn.hc_down.weight",
    "mtp.hc_up.weight": "nextn.hc_up.weight",
    "mtp.hyper_connection_mixer.hc_norm.weight": "nextn.hc_norm.weight",
    "mtp.hyper_connection_mixer.input_mix_weight_down.weight": "nextn.hc_down.weight",
    "mtp.hyper_connection_mixer.input_mix_weight_up.weight": "nextn.hc_up.weight",
    "nextn.fc_embd.weight": "nextn.fc_embedding.weight",
    "nextn.hc_head_norm.weight": "nextn.hc_norm.weight",
    "nextn.hc_head_down.weight": "nextn.hc_down.weight",
    "nextn.hc_head_up.weight": "nextn.hc_up.weight",
}
"""Spellings of the draft layer's own tensors in files of several converters (with the layer's prefix removed)."""

_DRAFT_PREFIXES = ("mtp.layers.0.", "mtp.0.")


def layer_name(layer: int, name: str) -> str:
    """The full name of a tensor of trunk layer `layer`, or of the draft layer when `layer` is the trunk's length."""
    return f"blk.{layer}.{name}"


def canonical_name(name: str, n_layers: int) -> str:
    """The name under which the tables list a tensor that a file calls `name`."""
    prefixes = (layer_name(n_layers, ""), *_DRAFT_PREFIXES)
    inner = next((name[len(prefix) :] for prefix in prefixes if name.startswith(prefix)), None)
    if inner is None:
        alias = _DRAFT_ALIASES.get(name) if name.startswith("mtp.") else None
        return layer_name(n_layers, alias) if alias else name
    return layer_name(n_layers, _DRAFT_ALIASES.get(inner, inner))
