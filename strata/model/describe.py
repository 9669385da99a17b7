"""How large a model is and how much of it one token reads.

Pure functions of the weights; all figures are encoded bytes or counts of weights.  The bytes that a token must read,
divided by a machine's bandwidth, are the floor of a decoding step.  Does not know: caches, devices, bandwidth.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

from strata.model.config import ModelConfig
from strata.model.tensor import Tensor
from strata.model.weights import LayerWeights, MoeWeights, Weights


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Encoded bytes of one layer: everything but the routed experts, and one routed expert."""

    dense: int
    expert: int


def tensors_of(node: object) -> Iterator[Tensor]:
    """Every tensor below a node of the weight tree, in field order."""
    if isinstance(node, Tensor):
        yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from tensors_of(item)
    elif is_dataclass(node):
        for field in fields(node):
            yield from tensors_of(getattr(node, field.name))


def total_parameters(weights: Weights) -> int:
    """Weights of the whole model, draft layer and n-gram table included."""
    return sum(tensor.n_weights for tensor in tensors_of(weights))


def total_bytes(node: object) -> int:
    """Encoded bytes of every tensor below a node."""
    return sum(tensor.raw.size for tensor in tensors_of(node))


def expert_bytes(moe: MoeWeights) -> int:
    """Encoded bytes of one routed expert: gate, up and down."""
    return sum(bank.raw.size // bank.shape[0] for bank in (moe.gate, moe.up, moe.down))


def layer_bytes(layer: LayerWeights) -> LayerBytes:
    """A trunk layer's dense bytes and the bytes of one of its experts."""
    expert = expert_bytes(layer.moe)
    return LayerBytes(total_bytes(layer) - layer.moe.gate.shape[0] * expert, expert)


def token_bytes(weights: Weights, config: ModelConfig) -> int:
    """Encoded bytes that one decoded token reads: the dense weights, its experts, its table rows, the output head.

    Without drafts, and with every byte counted once; K/V and recurrent state come on top.
    """
    layers = [layer_bytes(layer) for layer in weights.layers]
    trunk = sum(layer.dense + config.n_used * layer.expert for layer in layers)
    rows = weights.token_embd.row_bytes + config.n_ple_heads * weights.per_layer_token_embd.row_bytes
    return trunk + rows + total_bytes(weights.output_hc) + weights.output.raw.size


def token_parameters(weights: Weights, config: ModelConfig) -> int:
    """Weights that take part in one token: as `token_bytes`, counted in weights."""

    def layer(node: LayerWeights) -> int:
        bank = node.moe.gate.n_weights + node.moe.up.n_weights + node.moe.down.n_weights
        every = sum(tensor.n_weights for tensor in tensors_of(node))
        return every - bank + bank // config.n_experts * config.n_used

    rows = config.hidden + config.ple_width
    head = weights.output.n_weights + sum(tensor.n_weights for tensor in tensors_of(weights.output_hc))
    return sum(layer(node) for node in weights.layers) + rows + head
