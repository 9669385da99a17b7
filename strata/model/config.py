"""A model's dimensions and constants: read from its keys, checked once, never changed.

Every number the engine needs beyond the weights themselves.  Sizes are counts of values, ids are token or layer
indices; derived widths are properties so that each stands in one place.  `read_config` in `config_reader.py` makes one
from a model's keys.  Does not know: tensors, files, rounding.
"""

from dataclasses import dataclass, field

SELECTIONS = ("fill", "whole-blocks")
"""Rules by which sparse attention chooses cells: as many as the selection's width, or whole blocks and the tail only."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Dimensions and constants of one model of the `qwen4exp` architecture."""

    vocabulary: int
    context_length: int
    hidden: int
    n_layers: int
    rms_epsilon: float

    n_streams: int
    low_rank: int

    qsa_interval: int
    n_q_heads: int
    n_kv_heads: int
    head_dim: int
    rope_base: float
    rope_dims: int
    n_indexer_heads: int
    indexer_dim: int
    indexer_top_k: int
    indexer_block: int

    ssm_state: int
    n_ssm_qk_heads: int
    n_ssm_v_heads: int
    conv_taps: int

    n_experts: int
    n_used: int
    expert_ff: int
    shared_ff: int

    ple_layers: tuple[int, ...]
    ple_ngram_size: int
    ple_heads_per_ngram: int
    ple_head_dim: int
    ple_conv_taps: int
    ple_dilation: int
    ple_eos_token_id: int
    ple_multipliers: tuple[int, ...]
    ple_sizes: tuple[int, ...]
    ple_offsets: tuple[int, ...]

    eos_token_id: int
    eot_token_id: int
    n_draft_layers: int
    draft_token_ids: tuple[int, ...] = field(repr=False)
    selection: str = "fill"
    """Which cells sparse attention takes: no key of the file says so, the engine's settings do."""

    def is_qsa(self, layer: int) -> bool:
        """Whether trunk layer `layer` is sparse attention; the others are gated delta nets."""
        return layer % self.qsa_interval == self.qsa_interval - 1

    def is_ple(self, layer: int) -> bool:
        """Whether the n-gram table is added before trunk layer `layer`."""
        return layer in self.ple_layers

    @property
    def qsa_layers(self) -> tuple[int, ...]:
        return tuple(layer for layer in range(self.n_layers) if self.is_qsa(layer))

    @property
    def gdn_layers(self) -> tuple[int, ...]:
        return tuple(layer for layer in range(self.n_layers) if not self.is_qsa(layer))

    @property
    def end_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a generation, ascending."""
        return tuple(sorted({self.eos_token_id, self.eot_token_id, self.ple_eos_token_id}))

    @property
    def selection_width(self) -> int:
        """Cells that a QSA row attends to at most: the best blocks and the incomplete one."""
        return self.indexer_top_k + self.indexer_block - 1

    @property
    def residual_width(self) -> int:
        """Values of all streams of one row."""
        return self.n_streams * self.hidden

    @property
    def group_heads(self) -> int:
        """Query heads that share one key/value head."""
        return self.n_q_heads // self.n_kv_heads

    @property
    def q_gate_width(self) -> int:
        """Rows of `attn_q`: a query and an output gate per head."""
        return 2 * self.attention_width

    @property
    def attention_width(self) -> int:
        return self.n_q_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.n_kv_heads * self.head_dim

    @property
    def indexer_width(self) -> int:
        return self.n_indexer_heads * self.indexer_dim

    @property
    def ssm_qk_width(self) -> int:
        """Values of all q heads (and of all k heads) of a gated delta net."""
        return self.n_ssm_qk_heads * self.ssm_state

    @property
    def ssm_inner(self) -> int:
        """Values of all v heads of a gated delta net."""
        return self.n_ssm_v_heads * self.ssm_state

    @property
    def ssm_channels(self) -> int:
        """Convolved channels: q heads, k heads, v heads."""
        return 2 * self.ssm_qk_width + self.ssm_inner

    @property
    def n_ple_heads(self) -> int:
        return (self.ple_ngram_size - 1) * self.ple_heads_per_ngram

    @property
    def ple_width(self) -> int:
        """Values of one token's concatenated n-gram embedding."""
        return self.n_ple_heads * self.ple_head_dim

    @property
    def ple_rows(self) -> int:
        """Rows of the n-gram table that the hash can reach."""
        return max(size + offset for size, offset in zip(self.ple_sizes, self.ple_offsets, strict=True))

    @property
    def ple_history(self) -> int:
        """Rows before the current one that the n-gram convolution reaches."""
        return (self.ple_conv_taps - 1) * self.ple_dilation
