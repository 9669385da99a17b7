"""A stage's weights as the host uses them: packed matrices and small float32 vectors, by layer.

Made once from `strata.model.weights` when a stage opens; packed bytes stay in the mapped file.  Does not know: arithmetic.
"""

from dataclasses import dataclass

import numpy as np

from strata.formats.table import by_name
from strata.formats.unpack import dequantise
from strata.host.matrix import Matrix
from strata.model.config import ModelConfig
from strata.model.tensor import Tensor
from strata.model.weights import GdnWeights, LayerWeights, MoeWeights, PleWeights, QsaWeights, StreamMixer, Weights


class Rows:
    """A table of rows that are looked up and dequantised: token embeddings, n-grams."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.packed, self.nbytes = tensor, tensor.as_bytes(), tensor.raw.size

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """Return float32 [len(indices), columns]."""
        chosen = np.ascontiguousarray(self.packed[indices])
        if not self.tensor.is_quantised:
            return _widened(self.tensor.type_name, chosen, self.tensor.columns)
        return dequantise(by_name(self.tensor.type_name), chosen.reshape(-1), len(indices) * self.tensor.columns).reshape(len(indices), -1)


def _widened(type_name: str, packed: np.ndarray, columns: int) -> np.ndarray:
    if type_name == "F32":
        return packed.view(np.float32).reshape(-1, columns)
    if type_name == "F16":
        return packed.view(np.float16).astype(np.float32).reshape(-1, columns)
    return (packed.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(-1, columns)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedMixer:
    norm: np.ndarray
    down: Matrix
    up: Matrix
    inject: Matrix | None


@dataclass(frozen=True, slots=True, eq=False)
class PlacedGdn:
    qkv: Matrix
    gate: Matrix
    alpha: Matrix
    beta: Matrix
    output: Matrix
    conv: np.ndarray
    decay: np.ndarray
    dt_bias: np.ndarray
    norm: np.ndarray
    read_scale: np.float32


@dataclass(frozen=True, slots=True, eq=False)
class PlacedIndexer:
    q: Matrix
    k: Matrix
    q_norm: np.ndarray
    k_norm: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class PlacedQsa:
    q: Matrix
    k: Matrix
    v: Matrix
    output: Matrix
    q_norm: np.ndarray
    k_norm: np.ndarray
    indexer: PlacedIndexer | None
    score_scale: np.float32


@dataclass(frozen=True, slots=True, eq=False)
class PlacedMoe:
    router: Matrix
    gate: Matrix
    up: Matrix
    down: Matrix
    shared_router: Matrix
    shared_gate: Matrix
    shared_up: Matrix
    shared_down: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class PlacedNgrams:
    table: Rows
    key: Matrix
    value: Matrix
    norm_key: np.ndarray
    norm_query: np.ndarray
    norm_conv: np.ndarray
    conv: np.ndarray
    multipliers: np.ndarray
    sizes: np.ndarray
    offsets: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class PlacedLayer:
    index: int
    attention_mixer: PlacedMixer
    moe_mixer: PlacedMixer
    moe: PlacedMoe
    gdn: PlacedGdn | None
    qsa: PlacedQsa | None
    ngrams: PlacedNgrams | None


@dataclass(frozen=True, slots=True, eq=False)
class PlacedStage:
    """Layers first..last-1 of a model; the first stage has the embedding, the last the head."""

    name: str
    layers: tuple[PlacedLayer, ...]
    embedding: Rows | None
    output_mixer: PlacedMixer | None
    output: Matrix | None
    weight_bytes: int

    def of(self, layer: int) -> PlacedLayer:
        return self.layers[layer - self.layers[0].index]

    @property
    def routed_bytes(self) -> int:
        """Bytes of the routed experts, part of `weight_bytes`."""
        return sum(matrix.nbytes for layer in self.layers for matrix in (layer.moe.gate, layer.moe.up, layer.moe.down))


def place_stage(weights: Weights, config: ModelConfig, first: int, last: int) -> PlacedStage:
    """Wrap the weights of layers first..last-1, with the embedding and head where they belong."""
    chosen = weights.layers[first:last]
    is_last = last == config.n_layers
    tensors = [tensor for layer in chosen for tensor in tensors_of(layer)]
    if any(layer.ple is not None for layer in chosen):
        tensors.append(weights.per_layer_token_embd)
    if first == 0:
        tensors.append(weights.token_embd)
    if is_last:
        tensors += [weights.output, *tensors_of(weights.output_hc)]
    return PlacedStage(
        name=f"layers {first}-{last - 1}",
        layers=tuple(_layer(layer, weights, config) for layer in chosen),
        embedding=Rows(weights.token_embd) if first == 0 else None,
        output_mixer=place_mixer(weights.output_hc) if is_last else None,
        output=Matrix(weights.output) if is_last else None,
        weight_bytes=sum(tensor.raw.size for tensor in tensors),
    )


def tensors_of(node) -> list[Tensor]:
    """Return every tensor below a node of the weights' tree."""
    if isinstance(node, Tensor):
        return [node]
    if not hasattr(node, "__dataclass_fields__"):
        return []
    return [tensor for name in node.__dataclass_fields__ for tensor in tensors_of(getattr(node, name))]


def _layer(layer: LayerWeights, weights: Weights, config: ModelConfig) -> PlacedLayer:
    is_qsa = isinstance(layer.attention, QsaWeights)
    return PlacedLayer(
        index=layer.index,
        attention_mixer=place_mixer(layer.attention_mixer),
        moe_mixer=place_mixer(layer.moe_mixer),
        moe=place_moe(layer.moe),
        gdn=None if is_qsa else _gdn(layer.attention, config),
        qsa=place_attention(layer.attention, config) if is_qsa else None,
        ngrams=None if layer.ple is None else _ngrams(layer.ple, weights.per_layer_token_embd, config),
    )


def place_mixer(mixer: StreamMixer) -> PlacedMixer:
    """Wrap a stream mixer."""
    inject = None if mixer.inject is None else Matrix(mixer.inject)
    return PlacedMixer(mixer.norm.floats(), Matrix(mixer.down), Matrix(mixer.up), inject)


def _gdn(w: GdnWeights, config: ModelConfig) -> PlacedGdn:
    return PlacedGdn(
        qkv=Matrix(w.qkv), gate=Matrix(w.gate), alpha=Matrix(w.alpha), beta=Matrix(w.beta), output=Matrix(w.output),
        conv=w.conv.floats(), decay=w.decay.floats(), dt_bias=w.dt_bias.floats(), norm=w.norm.floats(),
        read_scale=inverse_root(config.ssm_state),
    )


def place_attention(w: QsaWeights, config: ModelConfig) -> PlacedQsa:
    """Wrap an attention layer; the indexer is None where the layer attends to all cells."""
    chosen = w.indexer
    placed = None if chosen is None else PlacedIndexer(Matrix(chosen.q), Matrix(chosen.k), chosen.q_norm.floats(), chosen.k_norm.floats())
    return PlacedQsa(
        q=Matrix(w.q), k=Matrix(w.k), v=Matrix(w.v), output=Matrix(w.output), q_norm=w.q_norm.floats(), k_norm=w.k_norm.floats(),
        indexer=placed, score_scale=inverse_root(config.head_dim),
    )


def place_moe(w: MoeWeights) -> PlacedMoe:
    """Wrap a layer's experts."""
    return PlacedMoe(
        Matrix(w.router), Matrix(w.gate), Matrix(w.up), Matrix(w.down),
        Matrix(w.shared_router), Matrix(w.shared_gate), Matrix(w.shared_up), Matrix(w.shared_down),
    )


def _ngrams(w: PleWeights, table: Tensor, config: ModelConfig) -> PlacedNgrams:
    return PlacedNgrams(
        table=Rows(table), key=Matrix(w.key), value=Matrix(w.value),
        norm_key=w.norm_key.floats(), norm_query=w.norm_query.floats(), norm_conv=w.norm_conv.floats(), conv=w.conv.floats(),
        multipliers=np.array(config.ple_multipliers, np.uint64), sizes=np.array(config.ple_sizes, np.uint64),
        offsets=np.array(config.ple_offsets, np.uint64),
    )


def inverse_root(n: int) -> np.float32:
    """Return 1 / sqrt(n), each step rounded to float32."""
    return np.float32(1.0) / np.sqrt(np.float32(n))
