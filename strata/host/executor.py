"""The host executor: one stage's layers and sessions on a host device, block by block.

Implements `strata.windows.contract.Executor` with the operations of this room.  `begin` is called once per window and
stage; the blocks then run in the model's order.  A window that is not kept leaves its rows' inputs behind until `commit`
replays the kept ones.  `observe(window, point, layer, values)` sees every operation's result where it lies, before it is
used, and may be None.  Does not know: other stages, slots' meaning, drafts.
"""

import numpy as np

from strata.host import attention, gdn, indexer, ngrams
from strata.host.blocks import HostBlocks, Observer
from strata.host.device import HostDevice
from strata.host.matrix import Activations
from strata.host.placed import PlacedStage
from strata.host.state import GdnState, NgramState, QsaState, clear, copy_slot, gdn_state, ngram_state, qsa_state, state_bytes
from strata.model.config import ModelConfig
from strata.numerics.rotary import rotary_table
from strata.numerics.rounding import RoundingMode
from strata.rows import Window

TOP = -1
"""The layer index of what lies outside the layers: embedding and head."""
NGRAM_KEY = 1 << 20
"""Offset of n-gram layers among the pending inputs: a layer can have both kinds of state."""


class HostExecutor(HostBlocks):
    """A stage on a host device; shapes as in DESIGN's vocabulary, rows first."""

    def __init__(
        self, device: HostDevice, config: ModelConfig, placed: PlacedStage, mode: RoundingMode, kv: str, n_slots: int, context: int
    ) -> None:
        self.device, self.config, self.placed, self.mode, self.kv = device, config, placed, mode, kv
        self.n_slots, self.context = n_slots, context
        self.control = device.team.control
        self.observe: Observer | None = None
        self.eps = np.float32(config.rms_epsilon)
        self.raw_format = "f16" if mode.coded else "f32"
        self.state: dict[int, GdnState | QsaState] = {}
        self.ngrams: dict[int, NgramState] = {}
        for layer in placed.layers:
            index = layer.index
            self.state[index] = (
                qsa_state(config, n_slots, context, kv, self.raw_format) if config.is_qsa(index) else gdn_state(config, n_slots)
            )
            if layer.ngrams is not None:
                self.ngrams[index] = ngram_state(config, n_slots)
        self.device.take(f"sessions of {placed.name}", sum(map(state_bytes, (*self.state.values(), *self.ngrams.values()))))
        self.table = rotary_table(config.rope_base, config.rope_dims, context)
        self._pending: dict[Window, dict[int, tuple]] = {}
        self.window: Window | None = None

    # ---- window

    def begin(self, window: Window) -> None:
        """Start a window: everything until the next `begin` is about its rows."""
        self.window = window
        if not window.keep:
            self._pending[window] = {}
        self.rows_begin(window.n_rows)

    def commit(self, window: Window, kept: np.ndarray) -> None:
        """Keep the first kept[s] rows of each segment of a window that was run without `keep`; kept int32 [segments]."""
        first, slot = window.first, window.segment_slot
        for layer, inputs in self._pending.pop(window).items():
            if layer in self.state:
                w, g, beta, u = inputs
                state = self.state[layer]
                gdn.commit(w, g, beta, u, state.memory, state.tail, first, slot, kept, self.config.n_ssm_qk_heads)
            else:
                self._keep_ngrams(window, self.ngrams[layer - NGRAM_KEY], inputs[0], kept)

    def abandon(self, window: Window) -> None:
        """Drop what a failed window left behind; its rows were never kept."""
        self._pending.pop(window, None)

    def clear(self, slot: int) -> None:
        """Start a new session in a slot."""
        for state in (*self.state.values(), *self.ngrams.values()):
            clear(state, slot)

    def copy_slot(self, source: int, target: int) -> None:
        """Copy a session from one slot to another."""
        for state in (*self.state.values(), *self.ngrams.values()):
            copy_slot(state, source, target)

    # ---- blocks

    def embed(self) -> np.ndarray:
        """Return the residual [rows, C, H] of the window's tokens."""
        embedded = self.placed.embedding.rows(self.window.tokens)
        residual = np.ascontiguousarray(np.repeat(embedded[:, None, :], self.config.n_streams, axis=1))
        self._see("embed", TOP, residual)
        return residual

    def ngram(self, layer: int, residual: np.ndarray) -> None:
        """Add the n-gram layer's rows to the residual, in place."""
        w, c, placed, state = self.window, self.config, self.placed.of(layer).ngrams, self.ngrams[layer]
        rows = np.empty((w.n_rows, c.n_ple_heads), np.int64)
        ngrams.table_rows(
            w.tokens, w.segment_of_row, w.first, w.segment_slot, state.tokens, c.ple_eos_token_id,
            placed.multipliers, placed.sizes, placed.offsets, c.ple_heads_per_ngram, rows,
        )
        x = self._activations(placed.table.rows(rows.reshape(-1)).reshape(w.n_rows, c.ple_width))
        self._see("ngram.embedding", layer, x.values)
        key, value = self._times(placed.key, x), self._times(placed.value, x)
        self._see("ngram.key", layer, key)
        self._see("ngram.value", layer, value)
        gated, conv_rows = np.empty_like(key), np.empty_like(key)
        root_hidden = np.sqrt(np.float32(c.hidden))
        ngrams.gate_values(
            residual, key, value, placed.norm_key, placed.norm_query, placed.norm_conv, self.eps, root_hidden, gated, conv_rows
        )
        self._see("ngram.gate", layer, gated)
        ngrams.convolve_add(
            residual, gated, conv_rows, state.tail, placed.conv, c.ple_dilation, w.segment_of_row, w.first, w.segment_slot
        )
        self._see("ngram.residual", layer, residual)
        if w.keep:
            self._keep_ngrams(w, state, conv_rows, w.count)
        else:
            self._pending[w][NGRAM_KEY + layer] = (conv_rows,)

    def _keep_ngrams(self, window: Window, state: NgramState, conv_rows: np.ndarray, kept: np.ndarray) -> None:
        gdn.keep_tail(conv_rows, state.tail, window.first, window.segment_slot, kept)
        ngrams.keep_history(window.tokens, window.first, window.segment_slot, kept, state.tokens)

    def gdn(self, layer: int, mixed: np.ndarray) -> np.ndarray:
        """Return the gated delta net's output [rows, H]."""
        w, c, placed, state = self.window, self.config, self.placed.of(layer).gdn, self.state[layer]
        x = self._activations(mixed)
        u, z = self._times(placed.qkv, x), self._times(placed.gate, x)
        self._see("gdn.qkv", layer, u)
        self._see("gdn.z", layer, z)
        g = np.empty((w.n_rows, c.n_ssm_v_heads), np.float32)
        beta = np.empty_like(g)
        gdn.gates(self._times(placed.alpha, x), self._times(placed.beta, x), placed.dt_bias, placed.decay, g, beta)
        self._see("gdn.g", layer, g)
        self._see("gdn.beta", layer, beta)
        inputs = np.empty_like(u)
        gdn.convolve(self.control, u, state.tail, placed.conv, w.segment_of_row, w.first, w.segment_slot, inputs)
        gdn.normalise_heads(inputs, 2 * c.n_ssm_qk_heads, c.ssm_state, self.eps)
        self._see("gdn.conv", layer, inputs)
        o = np.empty((w.n_rows, c.ssm_inner), np.float32)
        gdn.scan(
            self.control, inputs, g, beta, state.memory, w.first, w.count, w.segment_slot, w.keep, c.n_ssm_qk_heads, placed.read_scale, o
        )
        self._see("gdn.scan", layer, o)
        if w.keep:
            gdn.keep_tail(u, state.tail, w.first, w.segment_slot, w.count)
        else:
            self._pending[w][layer] = (inputs, g, beta, u)
        gated = np.empty_like(o)
        gdn.gate_norm(o, z, placed.norm, self.eps, gated)
        self._see("gdn.gated", layer, gated)
        y = self._times(placed.output, self._activations(gated))
        self._see("gdn.output", layer, y)
        return y

    def qsa(self, layer: int, mixed: np.ndarray) -> np.ndarray:
        """Return the sparse attention's output [rows, H]; writes the rows' cells first."""
        w, c, placed, state = self.window, self.config, self.placed.of(layer).qsa, self.state[layer]
        x = self._activations(mixed)
        projected, k, v = self._times(placed.q, x), self._times(placed.k, x), self._times(placed.v, x)
        self._see("qsa.q", layer, projected)
        self._see("qsa.k", layer, k)
        self._see("qsa.v", layer, v)
        queries = self._heads(projected, placed.q_norm, c.n_q_heads, 2 * c.head_dim, w.positions)
        keys = self._heads(k, placed.k_norm, c.n_kv_heads, c.head_dim, w.positions)
        store = attention.store_cells(self.kv)
        store(keys, w.slots, w.positions, state.k_codes, state.k_scales)
        store(v.reshape(keys.shape), w.slots, w.positions, state.v_codes, state.v_scales)
        cells, counts = self._select(layer, x)
        out = np.empty_like(queries)
        attention.attend(self.kv)(
            self.control, queries, state.k_codes, state.k_scales, state.v_codes, state.v_scales, w.slots, cells, counts, placed.score_scale, out
        )
        self._see("qsa.attended", layer, out)
        gated = np.empty((w.n_rows, c.attention_width), np.float32)
        attention.gate(out, projected, gated)
        self._see("qsa.gated", layer, gated)
        y = self._times(placed.output, self._activations(gated))
        self._see("qsa.output", layer, y)
        return y

    def _select(self, layer: int, x: Activations) -> tuple[np.ndarray, np.ndarray]:
        w, c, placed, state = self.window, self.config, self.placed.of(layer).qsa.indexer, self.state[layer]
        raw = self._times(placed.k, x)
        self._see("indexer.k", layer, raw)
        attention.store_cells(self.raw_format)(raw[:, None, :], w.slots, w.positions, state.raw, state.raw_scales)
        indexer.pool_blocks(self.raw_format)(
            state.raw, state.raw_scales, c.indexer_block, placed.k_norm, self.eps, self.table, w.slots, w.positions, state.pooled
        )
        queries = self._heads(self._times(placed.q, x), placed.q_norm, c.n_indexer_heads, c.indexer_dim, w.positions)
        self._see("indexer.q", layer, queries)
        deepest = int(w.positions.max()) + 1
        scores = np.zeros((w.n_rows, deepest // c.indexer_block + 1), np.float32)
        cells = np.empty((w.n_rows, min(c.selection_width, deepest)), np.int32)
        counts = np.empty(w.n_rows, np.int32)
        indexer.pick_cells(
            self.control, queries, state.pooled, w.slots, w.positions, c.indexer_block, c.selection_width, scores, cells, counts
        )
        self._see("indexer.scores", layer, scores)
        self._see("indexer.cells", layer, np.where(np.arange(cells.shape[1])[None, :] < counts[:, None], cells, -1))
        return cells, counts

    def moe(self, layer: int, mixed: np.ndarray) -> np.ndarray:
        """Return the routed and shared experts' combined output [rows, H]."""
        return self.mix_experts(layer, self.placed.of(layer).moe, mixed)

    def head(self, residual: np.ndarray) -> np.ndarray:
        """Return logits [len(logit_rows), vocabulary]."""
        if not len(self.window.logit_rows):
            return np.empty((0, self.config.vocabulary), np.float32)
        chosen = np.ascontiguousarray(residual[self.window.logit_rows])
        mixed, _ = self.read_streams(TOP, "head", self.placed.output_mixer, chosen)
        logits = self.placed.output.times(self._activations(mixed), self.mode.coded, self.control)
        self._see("logits", TOP, logits)
        return logits

    def close(self) -> None:
        """Release what this stage took from its device."""
        self.device.give_back(f"sessions of {self.placed.name}")
