"""A model's weights as a tree: trunk layers, top tensors, draft layer.

Every leaf is a `Tensor` that views the mapped file.  Does not know: how to load (see `weights_loader.py`), what is
computed with a weight, where it is placed.
"""

from dataclasses import dataclass

from strata.model.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class StreamMixer:
    """Weights of reading the streams: norm [C*H], down [low_rank, C*H], up [C*H, low_rank], inject [C, C*H] or none."""

    norm: Tensor
    down: Tensor
    up: Tensor
    inject: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GdnWeights:
    """A gated delta net; `decay` is `ssm_a` (negative), `conv` is [channels, taps] with the oldest tap first."""

    qkv: Tensor
    gate: Tensor
    conv: Tensor
    alpha: Tensor
    beta: Tensor
    decay: Tensor
    dt_bias: Tensor
    norm: Tensor
    output: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class IndexerWeights:
    """What chooses the cells of sparse attention: q [heads*dim, H], k [dim, H], norms [dim]."""

    q: Tensor
    k: Tensor
    q_norm: Tensor
    k_norm: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class QsaWeights:
    """Sparse attention; `q` holds per head a query and an output gate.  The draft layer's `indexer` may be none."""

    q: Tensor
    k: Tensor
    v: Tensor
    q_norm: Tensor
    k_norm: Tensor
    output: Tensor
    indexer: IndexerWeights | None


@dataclass(frozen=True, slots=True, eq=False)
class MoeWeights:
    """Router [E, H], expert banks gate, up [E, F, H] and down [E, H, F], the shared expert and its router [H]."""

    router: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    shared_router: Tensor
    shared_gate: Tensor
    shared_up: Tensor
    shared_down: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PleWeights:
    """The n-gram block of a layer: key [C*H, width], value [H, width], three norms [C*H], conv [C*H, taps]."""

    key: Tensor
    value: Tensor
    norm_key: Tensor
    norm_query: Tensor
    norm_conv: Tensor
    conv: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """One trunk layer."""

    index: int
    attention_mixer: StreamMixer
    attention: GdnWeights | QsaWeights
    moe_mixer: StreamMixer
    moe: MoeWeights
    ple: PleWeights | None


@dataclass(frozen=True, slots=True, eq=False)
class DraftWeights:
    """The draft layer; it shares the trunk's `token_embd` and `output`."""

    hidden_norm: Tensor
    embedding_norm: Tensor
    fc_hidden: Tensor
    fc_embedding: Tensor
    attention_mixer: StreamMixer
    attention: QsaWeights
    moe_mixer: StreamMixer
    moe: MoeWeights
    output_mixer: StreamMixer


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """All weights of a model, named as in its file at the top level."""

    token_embd: Tensor
    output: Tensor
    per_layer_token_embd: Tensor
    output_hc: StreamMixer
    layers: tuple[LayerWeights, ...]
    draft: DraftWeights | None
