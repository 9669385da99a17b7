"""A stage's weights on a card: packed bytes as in the file, small vectors as float32, by layer.

Every tensor is uploaded once, under the purpose that accounts for it.  A matrix of a block format is a `Packed`, one of a
float type a `FloatMatrix`, a table of rows a `Table`.  Does not know: arithmetic, launches.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.cuda.card.device import CudaDevice
from strata.cuda.packed.products import Packed
from strata.formats.table import by_name
from strata.model.config import ModelConfig
from strata.model.tensor import Tensor
from strata.model.weights import GdnWeights, LayerWeights, MoeWeights, PleWeights, QsaWeights, StreamMixer, Weights


@dataclass(frozen=True, slots=True, eq=False)
class FloatMatrix:
    """raw uint8 of float weights [n_out, n_in]."""

    raw: Any
    type_name: str
    n_out: int
    n_in: int


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """raw uint8 of a table's rows."""

    raw: Any
    type_name: str
    row_bytes: int
    columns: int


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A block's weights by name."""

    named: dict[str, Any]

    def __getattr__(self, name: str):
        try:
            return self.named[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True, slots=True, eq=False)
class CardLayer:
    """One layer; `gdn` or `qsa` and perhaps `ngrams` are there."""

    index: int
    attention_mixer: Part
    moe_mixer: Part
    moe: Part
    gdn: Part | None
    qsa: Part | None
    ngrams: Part | None


@dataclass(frozen=True, slots=True, eq=False)
class CardStage:
    """Layers first..last-1 of a model on a card; the first stage has the embedding, the last the head."""

    name: str
    layers: tuple[CardLayer, ...]
    embedding: Table | None
    output_mixer: Part | None
    output: Packed | FloatMatrix | None

    def of(self, layer: int) -> CardLayer:
        return self.layers[layer - self.layers[0].index]


class Placer:
    """Uploads tensors of one stage."""

    def __init__(self, device: CudaDevice, purpose: str) -> None:
        self.device, self.purpose = device, purpose

    def raw(self, tensor: Tensor):
        """A tensor's packed bytes."""
        return self.device.upload(self.purpose, tensor.raw)

    def matrix(self, tensor: Tensor) -> Packed | FloatMatrix:
        """A matrix [n_out, n_in], or a bank of experts' matrices."""
        shape = tensor.shape if len(tensor.shape) > 1 else (1, *tensor.shape)
        raw = self.raw(tensor)
        if not tensor.is_quantised:
            return FloatMatrix(raw, tensor.type_name, shape[-2], shape[-1])
        return Packed(raw, by_name(tensor.type_name).type_id, shape[-2], shape[-1], tensor.row_bytes * shape[-2])

    def table(self, tensor: Tensor) -> Table:
        """A table of rows that are looked up."""
        return Table(self.raw(tensor), tensor.type_name, tensor.row_bytes, tensor.columns)

    def vector(self, tensor: Tensor):
        """Small floats, widened and flat."""
        return self.device.upload(self.purpose, tensor.floats().reshape(-1))

    def numbers(self, values, dtype):
        """Constants of the configuration."""
        return self.device.upload(self.purpose, np.array(values, dtype))

    def mixer(self, w: StreamMixer) -> Part:
        inject = None if w.inject is None else self.matrix(w.inject)
        return Part({"norm": self.vector(w.norm), "down": self.matrix(w.down), "up": self.matrix(w.up), "inject": inject})

    def gdn(self, w: GdnWeights) -> Part:
        matrices = {name: self.matrix(getattr(w, name)) for name in ("qkv", "gate", "alpha", "beta", "output")}
        return Part(matrices | {name: self.vector(getattr(w, name)) for name in ("conv", "decay", "dt_bias", "norm")})

    def qsa(self, w: QsaWeights) -> Part:
        matrices = {name: self.matrix(getattr(w, name)) for name in ("q", "k", "v", "output")}
        norms = {name: self.vector(getattr(w, name)) for name in ("q_norm", "k_norm")}
        x = w.indexer
        indexer = Part({"q": self.matrix(x.q), "k": self.matrix(x.k), "q_norm": self.vector(x.q_norm), "k_norm": self.vector(x.k_norm)})
        return Part(matrices | norms | {"indexer": indexer})

    def moe(self, w: MoeWeights, routed: bool = True) -> Part:
        """The experts block; without the experts' own banks where not `routed`."""
        names = ("router", *(("gate", "up", "down") if routed else ()), "shared_router", "shared_gate", "shared_up", "shared_down")
        return Part({name: self.matrix(getattr(w, name)) for name in names})

    def ngrams(self, w: PleWeights, table: Tensor, config: ModelConfig) -> Part:
        vectors = {name: self.vector(getattr(w, name)) for name in ("norm_key", "norm_query", "norm_conv", "conv")}
        numbers = {
            "multipliers": self.numbers(config.ple_multipliers, np.uint64), "sizes": self.numbers(config.ple_sizes, np.uint64),
            "offsets": self.numbers(config.ple_offsets, np.uint64),
        }
        return Part({"table": self.table(table), "key": self.matrix(w.key), "value": self.matrix(w.value)} | vectors | numbers)


def place_stage(device: CudaDevice, weights: Weights, config: ModelConfig, first: int, last: int, placer_type=Placer, routed: bool = True) -> CardStage:
    """Upload the weights of layers first..last-1, with the embedding and head where they belong.

    `placer_type` stands for Placer where weights come from elsewhere than a file.  Without `routed` the experts' banks stay away:
    their matrices are a tier's.
    """
    name = f"layers {first}-{last - 1}"
    placer, is_last = placer_type(device, f"weights of {name}"), last == config.n_layers
    return CardStage(
        name,
        tuple(_layer(placer, layer, weights, config, routed) for layer in weights.layers[first:last]),
        placer.table(weights.token_embd) if first == 0 else None,
        placer.mixer(weights.output_hc) if is_last else None,
        placer.matrix(weights.output) if is_last else None,
    )


def _layer(placer: Placer, layer: LayerWeights, weights: Weights, config: ModelConfig, routed: bool) -> CardLayer:
    is_qsa = isinstance(layer.attention, QsaWeights)
    return CardLayer(
        layer.index, placer.mixer(layer.attention_mixer), placer.mixer(layer.moe_mixer), placer.moe(layer.moe, routed),
        None if is_qsa else placer.gdn(layer.attention), placer.qsa(layer.attention) if is_qsa else None,
        None if layer.ple is None else placer.ngrams(layer.ple, weights.per_layer_token_embd, config),
    )
