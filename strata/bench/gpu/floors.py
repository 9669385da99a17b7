"""What a window must read and compute at least, from the geometry alone.

Bytes: all dense weights once, distinct experts once, the recurrent state of the slots in use read and written, keys and values of
the chosen cells, pooled keys that are scored, the head, rows of tables.  Activations stay in the card's cache and count nothing.
Operations: two per weight of packed matrices and row (int8), fused multiply-adds of float matrices, scan and attention.
Does not know: cards, time.
"""

from dataclasses import asdict, dataclass

from strata.bench.gpu.specs import Spec, specs_in
from strata.model.config import ModelConfig
from strata.model.weights import LayerWeights, MoeWeights, Weights

BANKS = ("gate", "up", "down")
FLOAT, HALF = 4, 2


@dataclass(frozen=True, slots=True)
class Floor:
    """Bytes by what they are for."""

    dense: int
    experts: int
    head: int
    state: int
    cells: int
    tables: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())


@dataclass(frozen=True, slots=True)
class Operations:
    """int8 operations (a multiplication and an addition are two) and fused multiply-adds of float32."""

    int8: int
    fused: int


@dataclass(frozen=True, slots=True)
class Load:
    """A window: rows, rows with logits, slots in use.

    Per attention layer: cells that are read, pairs of row and cell, pooled keys that are read, pairs of row and pooled key;
    distinct: experts that the layers take, summed over the layers.
    """

    n_rows: int
    n_logits: int
    n_slots: int
    cells: int
    pairs: int
    scored: int
    scored_pairs: int
    distinct: float


def banks_of(moe: MoeWeights) -> list[Spec]:
    return [getattr(moe, name) for name in BANKS]


def dense_specs(layer: LayerWeights) -> list[Spec]:
    """Return a layer's tensors without its banks."""
    banks = banks_of(layer.moe)
    return [spec for spec in specs_in(layer) if spec not in banks]


def expert_bytes(weights: Weights) -> int:
    """Return the bytes of one expert of one layer."""
    return sum(spec.n_bytes // spec.shape[0] for spec in banks_of(weights.layers[0].moe))


def floor_of(config: ModelConfig, weights: Weights, load: Load, cell_bytes: int = HALF) -> Floor:
    """Return the bytes that a window must move; `cell_bytes` is the size of one stored value of a key."""
    c = config
    dense = sum(spec.n_bytes for layer in weights.layers for spec in dense_specs(layer))
    mixer = sum(spec.n_bytes for spec in specs_in(weights.output_hc))
    memory = c.n_ssm_v_heads * c.ssm_state**2 + (c.conv_taps - 1) * c.ssm_channels
    per_layer = load.cells * 2 * c.kv_width * cell_bytes + load.scored * c.indexer_dim * FLOAT + load.n_rows * 2 * c.kv_width * cell_bytes
    n_ngrams = sum(c.is_ple(layer.index) for layer in weights.layers)
    tables = load.n_rows * (weights.token_embd.row_bytes + n_ngrams * c.n_ple_heads * weights.per_layer_token_embd.row_bytes)
    return Floor(
        dense=dense,
        experts=int(load.distinct * expert_bytes(weights)),
        head=weights.output.n_bytes + mixer if load.n_logits else 0,
        state=2 * load.n_slots * len(c.gdn_layers) * memory * FLOAT,
        cells=len(c.qsa_layers) * per_layer,
        tables=tables,
    )


def operations_of(config: ModelConfig, weights: Weights, load: Load) -> Operations:
    """Return the operations of a window."""
    c, n = config, load.n_rows
    dense = [spec for layer in weights.layers for spec in dense_specs(layer) if len(spec.shape) == 2 and spec.type_name != "F32"]
    packed = sum(spec.n_weights for spec in dense if spec.is_quantised)
    plain = sum(spec.n_weights for spec in dense if not spec.is_quantised)
    experts = sum(spec.n_weights // spec.shape[0] for layer in weights.layers for spec in banks_of(layer.moe))
    head = load.n_logits * weights.output.n_weights
    scan = len(c.gdn_layers) * n * c.n_ssm_v_heads * 4 * c.ssm_state**2
    attention = len(c.qsa_layers) * load.pairs * c.n_q_heads * 2 * c.head_dim
    indexer = len(c.qsa_layers) * load.scored_pairs * c.indexer_width
    return Operations(2 * (n * (packed + c.n_used * experts) + head), n * plain + scan + attention + indexer)


def load_of(config: ModelConfig, segments: list[tuple[int, int]], n_logits: int, distinct: float) -> Load:
    """Return the load of segments (start, rows), each of a slot of its own."""
    width = config.selection_width
    ends = [start + n for start, n in segments]
    cells = sum(min(end, width * n) for end, (_, n) in zip(ends, segments, strict=True))
    pairs = sum(min(start + i + 1, width) for start, n in segments for i in range(n))
    scored = sum(end // config.indexer_block for end in ends if end > width)
    scored_pairs = sum((start + i + 1) // config.indexer_block for start, n in segments for i in range(n) if start + i + 1 > width)
    return Load(sum(n for _, n in segments), n_logits, len(segments), cells, pairs, scored, scored_pairs, distinct)
