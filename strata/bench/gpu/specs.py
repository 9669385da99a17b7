"""The tensors of a synthetic model: names, shapes and types as a tree of weights, without a byte of data.

Formats: matrices in a dense format, experts' in another, the head in a third; stream mixers, router, alpha, beta, indexer,
and what multiplies single values in BF16, as real files have them.  Rows that are not a whole number of a format's blocks
take FALLBACK, of about the same bits a weight.  Does not know: seeds, devices.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

from strata.formats.contract import WeightFormat
from strata.formats.table import by_name
from strata.model.config import ModelConfig
from strata.model.tensor import FLOAT_BYTES
from strata.model.weights import GdnWeights, IndexerWeights, LayerWeights, MoeWeights, PleWeights, QsaWeights, StreamMixer, Weights

FALLBACK = {"Q3_K": "Q4_0", "Q4_K": "Q4_0", "Q5_K": "Q5_0", "Q6_K": "Q8_0"}
"""For rows that blocks of 256 do not divide; types that are not listed take OTHER_FALLBACK."""
OTHER_FALLBACK = "IQ4_NL"
TABLE = "Q8_0"
"""Type of the n-gram table."""
PLAIN = "BF16"
NORM, SMALL, DECAY = (1.0, 0.1), (0.0, 0.3), (-0.5, 0.1)
"""Mean and deviation of small vectors: norms; convolution taps and biases; a gated delta net's decay."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One tensor to be made; `spread` (mean, deviation) is for small float vectors."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    spread: tuple[float, float] = NORM

    @property
    def columns(self) -> int:
        return self.shape[-1]

    @property
    def rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def n_weights(self) -> int:
        return math.prod(self.shape)

    @property
    def is_quantised(self) -> bool:
        return self.type_name not in FLOAT_BYTES

    @property
    def row_bytes(self) -> int:
        if not self.is_quantised:
            return self.columns * FLOAT_BYTES[self.type_name]
        form = by_name(self.type_name)
        return self.columns // form.block_weights * form.block_bytes

    @property
    def n_bytes(self) -> int:
        return self.rows * self.row_bytes


def fitting(type_name: str, columns: int) -> str:
    """Return the type, or where its blocks do not divide a row the one that takes its place."""
    form = by_name(type_name)
    if not isinstance(form, WeightFormat) or columns % form.block_weights == 0:
        return form.name
    return FALLBACK.get(form.name, OTHER_FALLBACK)


class Writer:
    """Makes the specs of one model."""

    def __init__(self, config: ModelConfig, dense: str, experts: str, head: str) -> None:
        self.config, self.dense, self.experts, self.head = config, dense, experts, head

    def matrix(self, name: str, *shape: int, type_name: str | None = None) -> Spec:
        return Spec(name, shape, fitting(type_name or self.dense, shape[-1]))

    def plain(self, name: str, *shape: int) -> Spec:
        return Spec(name, shape, PLAIN)

    def vector(self, name: str, *shape: int, spread: tuple[float, float] = NORM) -> Spec:
        return Spec(name, shape, "F32", spread)

    def mixer(self, at: str, has_inject: bool = True) -> StreamMixer:
        c = self.config
        wide = c.residual_width
        inject = self.plain(f"{at}.inject", c.n_streams, wide) if has_inject else None
        return StreamMixer(
            self.vector(f"{at}.norm", wide), self.plain(f"{at}.down", c.low_rank, wide), self.plain(f"{at}.up", wide, c.low_rank), inject
        )

    def gdn(self) -> GdnWeights:
        c, h = self.config, self.config.hidden
        return GdnWeights(
            qkv=self.matrix("gdn.qkv", c.ssm_channels, h), gate=self.matrix("gdn.gate", c.ssm_inner, h),
            conv=self.vector("gdn.conv", c.ssm_channels, c.conv_taps, spread=SMALL), alpha=self.plain("gdn.alpha", c.n_ssm_v_heads, h),
            beta=self.plain("gdn.beta", c.n_ssm_v_heads, h), decay=self.vector("gdn.decay", c.n_ssm_v_heads, spread=DECAY),
            dt_bias=self.vector("gdn.dt_bias", c.n_ssm_v_heads, spread=SMALL), norm=self.vector("gdn.norm", c.ssm_state),
            output=self.matrix("gdn.output", h, c.ssm_inner),
        )

    def qsa(self) -> QsaWeights:
        c, h = self.config, self.config.hidden
        indexer = IndexerWeights(
            self.plain("indexer.q", c.indexer_width, h), self.plain("indexer.k", c.indexer_dim, h),
            self.vector("indexer.q_norm", c.indexer_dim), self.vector("indexer.k_norm", c.indexer_dim),
        )
        return QsaWeights(
            self.matrix("qsa.q", c.q_gate_width, h), self.matrix("qsa.k", c.kv_width, h), self.matrix("qsa.v", c.kv_width, h),
            self.vector("qsa.q_norm", c.head_dim), self.vector("qsa.k_norm", c.head_dim), self.matrix("qsa.output", h, c.attention_width), indexer,
        )

    def moe(self) -> MoeWeights:
        c, h = self.config, self.config.hidden
        bank = lambda name, *shape: self.matrix(name, c.n_experts, *shape, type_name=self.experts)  # noqa: E731
        return MoeWeights(
            self.plain("moe.router", c.n_experts, h), bank("experts.gate", c.expert_ff, h), bank("experts.up", c.expert_ff, h),
            bank("experts.down", h, c.expert_ff), self.plain("shared.router", h), self.matrix("shared.gate", c.shared_ff, h),
            self.matrix("shared.up", c.shared_ff, h), self.matrix("shared.down", h, c.shared_ff),
        )

    def ngrams(self) -> PleWeights:
        c, wide = self.config, self.config.residual_width
        norms = (self.vector(f"ngrams.norm_{name}", wide) for name in ("key", "query", "conv"))
        conv = self.vector("ngrams.conv", wide, c.ple_conv_taps, spread=SMALL)
        return PleWeights(self.matrix("ngrams.key", wide, c.ple_width), self.plain("ngrams.value", c.hidden, c.ple_width), *norms, conv)

    def layer(self, index: int) -> LayerWeights:
        c = self.config
        attention = self.qsa() if c.is_qsa(index) else self.gdn()
        ngrams = self.ngrams() if c.is_ple(index) else None
        return LayerWeights(index, self.mixer("attention mixer"), attention, self.mixer("moe mixer"), self.moe(), ngrams)

    def weights(self) -> Weights:
        c = self.config
        return Weights(
            self.matrix("embedding", c.vocabulary, c.hidden), self.matrix("head", c.vocabulary, c.hidden, type_name=self.head),
            Spec("ngrams.table", (c.ple_rows, c.ple_head_dim), TABLE), self.mixer("head mixer", False),
            tuple(self.layer(index) for index in range(c.n_layers)), None,
        )


def specs_in(tree) -> Iterator[Spec]:
    """Yield every tensor of a tree of weights, or of a part of it."""
    if isinstance(tree, Spec):
        yield tree
    elif isinstance(tree, tuple):
        for entry in tree:
            yield from specs_in(entry)
    elif is_dataclass(tree):
        for field in fields(tree):
            yield from specs_in(getattr(tree, field.name))
