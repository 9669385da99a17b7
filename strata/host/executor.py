"""The host executor: one stage's layers and sessions on a host device, block by block.

Implements `strata.windows.contract.Executor` with the operations of this room.  `begin` is called once per window and
stage; the blocks then run in the model's order.  A window that is not kept leaves its rows' inputs behind until `commit`
replays the kept ones.  Taps (`strata.host.taps`) show every operation's result, and state as it is read and as it was
stored.  Does not know: other stages, slots' meaning, drafts.
"""

import numpy as np

from strata.host import attention, gdn, indexer, ngrams
from strata.host.blocks import HostBlocks
from strata.host.device import HostDevice
from strata.host.matrix import Activations
from strata.host.placed import PlacedStage
from strata.host.state import GdnState, NgramState, QsaState, clear, copy_slot, gdn_state, ngram_state, qsa_state, state_bytes
from strata.model.config import ModelConfig
from strata.numerics.rotary import rotary_table
from strata.numerics.rounding import RoundingMode
from strata.places import cells_place, completed_blocks, newest_first, oldest_first
from strata.rows import Place, Window

TOP = -1
"""The layer index of what lies outside the layers: embedding and head."""
KV_POINTS = {
    moment: tuple((name, f"qsa.{name}.{moment}") for name in ("k_codes", "k_scales", "v_codes", "v_scales")) for moment in ("stored", "read")
}
NGRAM_KEY = 1 << 20
"""Offset of n-gram layers among the pending inputs: a layer can have both kinds of state."""


class HostExecutor(HostBlocks):
    """A stage on a host device; shapes as in DESIGN's vocabulary, rows first."""

    replays = False

    def __init__(
        self, device: HostDevice, config: ModelConfig, placed: PlacedStage, mode: RoundingMode, kv: str, n_slots: int, context: int
    ) -> None:
        self.device, self.config, self.placed, self.mode, self.kv = device, config, placed, mode, kv
        self.n_slots, self.context = n_slots, context
        self.control = device.team.control
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
        self._conv_ages, self._ngram_ages = oldest_first(config.conv_taps - 1), oldest_first(config.ple_history)
        self._token_ages = newest_first(2)

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
                self._see_stored("gdn.memory.stored", layer, state.memory, window, kept)
                self._see_tail_stored("gdn.tail.stored", layer, state.tail, self._conv_ages, window, kept)
            else:
                self._keep_ngrams(window, layer - NGRAM_KEY, inputs[0], kept)

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
        shape = (self.window.n_rows, self.config.n_streams, self.config.hidden)
        residual = np.empty(shape, np.float32) if self.window.for_drafts else self._buffer("residual", shape)  # a draft layer holds it
        residual[:] = embedded[:, None, :]
        self._see_outline("embed", TOP, residual)
        return residual

    def ngram(self, layer: int, residual: np.ndarray) -> None:
        """Add the n-gram layer's rows to the residual, in place."""
        w, c, placed, state = self.window, self.config, self.placed.of(layer).ngrams, self.ngrams[layer]
        rows = np.empty((w.n_rows, c.n_ple_heads), np.int64)
        self._see_tail_read("ngram.history.read", layer, state.tokens, self._token_ages)
        ngrams.table_rows(
            w.tokens, w.segment_of_row, w.first, w.segment_slot, state.tokens, c.ple_eos_token_id,
            placed.multipliers, placed.sizes, placed.offsets, c.ple_heads_per_ngram, rows,
        )
        self._see("ngram.rows", layer, rows)
        x = self._activations(placed.table.rows(rows.reshape(-1)).reshape(w.n_rows, c.ple_width))
        self._see("ngram.embedding", layer, x.values)
        self._see_codes("ngram", layer, x)
        key, value = self._times(placed.key, x), self._times(placed.value, x)
        self._see("ngram.key", layer, key)
        self._see("ngram.value", layer, value)
        gated, conv_rows = np.empty_like(key), np.empty_like(key)
        root_hidden = np.sqrt(np.float32(c.hidden))
        ngrams.gate_values(
            residual, key, value, placed.norm_key, placed.norm_query, placed.norm_conv, self.eps, root_hidden, gated, conv_rows
        )
        self._see("ngram.gate", layer, gated)
        self._see("ngram.normed", layer, conv_rows)
        self._see_tail_read("ngram.tail.read", layer, state.tail, self._ngram_ages)
        ngrams.convolve_add(
            residual, gated, conv_rows, state.tail, placed.conv, c.ple_dilation, w.segment_of_row, w.first, w.segment_slot
        )
        self._see("ngram.residual", layer, residual)
        if w.keep:
            self._keep_ngrams(w, layer, conv_rows, w.count)
        else:
            self._pending[w][NGRAM_KEY + layer] = (conv_rows,)

    def _keep_ngrams(self, window: Window, layer: int, conv_rows: np.ndarray, kept: np.ndarray) -> None:
        state = self.ngrams[layer]
        gdn.keep_tail(conv_rows, state.tail, window.first, window.segment_slot, kept)
        ngrams.keep_history(window.tokens, window.first, window.segment_slot, kept, state.tokens)
        self._see_tail_stored("ngram.tail.stored", layer, state.tail, self._ngram_ages, window, kept)
        self._see_tail_stored("ngram.history.stored", layer, state.tokens, self._token_ages, window, kept)

    def gdn(self, layer: int, mixed: np.ndarray) -> np.ndarray:
        """Return the gated delta net's output [rows, H]."""
        w, c, placed, state = self.window, self.config, self.placed.of(layer).gdn, self.state[layer]
        x = self._activations(mixed)
        self._see_codes("gdn", layer, x)
        u, z = self._times(placed.qkv, x), self._times(placed.gate, x)
        self._see("gdn.qkv", layer, u)
        self._see("gdn.z", layer, z)
        g = np.empty((w.n_rows, c.n_ssm_v_heads), np.float32)
        beta = np.empty_like(g)
        gdn.gates(self._times(placed.alpha, x), self._times(placed.beta, x), placed.dt_bias, placed.decay, g, beta)
        self._see("gdn.g", layer, g)
        self._see("gdn.beta", layer, beta)
        self._see_tail_read("gdn.tail.read", layer, state.tail, self._conv_ages)
        inputs = np.empty_like(u)
        gdn.convolve(self.control, u, state.tail, placed.conv, w.segment_of_row, w.first, w.segment_slot, inputs)
        gdn.normalise_heads(inputs, 2 * c.n_ssm_qk_heads, c.ssm_state, self.eps)
        self._see("gdn.conv", layer, inputs)
        o = self._scan(layer, inputs, g, beta)
        self._see("gdn.scan", layer, o)
        if w.keep:
            gdn.keep_tail(u, state.tail, w.first, w.segment_slot, w.count)
            self._see_stored("gdn.memory.stored", layer, state.memory, w, w.count)
            self._see_tail_stored("gdn.tail.stored", layer, state.tail, self._conv_ages, w, w.count)
        else:
            self._pending[w][layer] = (inputs, g, beta, u)
        gated = np.empty_like(o)
        gdn.gate_norm(o, z, placed.norm, self.eps, gated)
        self._see("gdn.gated", layer, gated)
        x = self._activations(gated)
        self._see_codes("gdn.gated", layer, x)
        y = self._times(placed.output, x)
        self._see("gdn.output", layer, y)
        return y

    def _scan(self, layer: int, inputs: np.ndarray, g: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """Return the recurrent memories' answers [rows, v_heads * S]; a kept window's memories move on."""
        w, c, memory, scale = self.window, self.config, self.state[layer].memory, self.placed.of(layer).gdn.read_scale
        self._see_read("gdn.memory.read", layer, memory)
        o = np.empty((w.n_rows, c.ssm_inner), np.float32)
        is_followed = self._watches("gdn.memory.after")
        hashes = np.empty((w.n_rows if is_followed else 0, c.n_ssm_v_heads, 2), np.uint64)
        gdn.scan(self.control, inputs, g, beta, memory, w.first, w.count, w.segment_slot, w.keep, c.n_ssm_qk_heads, scale, o, hashes)
        if is_followed:
            self._details(w, "gdn.memory.after", layer, hashes.sum(axis=1), Place(hashed=True))
        return o

    def qsa(self, layer: int, mixed: np.ndarray) -> np.ndarray:
        """Return the sparse attention's output [rows, H]; writes the rows' cells first."""
        w, c, placed, state = self.window, self.config, self.placed.of(layer).qsa, self.state[layer]
        x = self._activations(mixed)
        self._see_codes("qsa", layer, x)
        projected, k, v = self._times(placed.q, x), self._times(placed.k, x), self._times(placed.v, x)
        self._see("qsa.q", layer, projected)
        self._see("qsa.k", layer, k)
        self._see("qsa.v", layer, v)
        queries = self._heads(projected, placed.q_norm, c.n_q_heads, 2 * c.head_dim, w.positions)
        keys = self._heads(k, placed.k_norm, c.n_kv_heads, c.head_dim, w.positions)
        self._see("qsa.queries", layer, queries)
        self._see("qsa.keys", layer, keys)
        store = attention.store_cells(self.kv)
        store(keys, w.slots, w.positions, state.k_codes, state.k_scales)
        store(v.reshape(keys.shape), w.slots, w.positions, state.v_codes, state.v_scales)
        self._see_kv("stored", layer, w.positions)
        cells, counts = self._select(layer, x)
        self._see_kv("read", layer, cells)
        out = np.empty_like(queries)
        attention.attend(self.kv)(
            self.control, queries, state.k_codes, state.k_scales, state.v_codes, state.v_scales, w.slots, cells, counts, placed.score_scale, out
        )
        self._see("qsa.attended", layer, out)
        gated = np.empty((w.n_rows, c.attention_width), np.float32)
        attention.gate(out, projected, gated)
        self._see("qsa.gated", layer, gated)
        x = self._activations(gated)
        self._see_codes("qsa.gated", layer, x)
        y = self._times(placed.output, x)
        self._see("qsa.output", layer, y)
        return y

    def _see_kv(self, moment: str, layer: int, cells: np.ndarray) -> None:
        if self._details is None:
            return
        place, state = None, self.state[layer]
        for name, point in KV_POINTS[moment]:
            values = getattr(state, name)
            if values.size and point in self.watched:
                place = place or cells_place(self.context, self.window.slots, cells)
                self._details(self.window, point, layer, values.reshape(self.n_slots * self.context, -1), place)

    def _select(self, layer: int, x: Activations) -> tuple[np.ndarray, np.ndarray]:
        w, c, placed, state = self.window, self.config, self.placed.of(layer).qsa.indexer, self.state[layer]
        raw = self._times(placed.k, x)
        self._see("indexer.k", layer, raw)
        attention.store_cells(self.raw_format)(raw[:, None, :], w.slots, w.positions, state.raw, state.raw_scales)
        self._see_cells("indexer.raw.stored", layer, state.raw, w.slots, w.positions)
        self._see_block("indexer.raw.read", layer, state.raw, c.indexer_block)
        indexer.pool_blocks(self.raw_format)(
            state.raw, state.raw_scales, c.indexer_block, placed.k_norm, self.eps, self.table, w.slots, w.positions, state.pooled
        )
        self._see_block("indexer.pooled.stored", layer, state.pooled, 1)
        queries = self._heads(self._times(placed.q, x), placed.q_norm, c.n_indexer_heads, c.indexer_dim, w.positions)
        self._see("indexer.q", layer, queries)
        return self._pick_cells(layer, queries)

    def _pick_cells(self, layer: int, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w, c, pooled = self.window, self.config, self.state[layer].pooled
        deepest = int(w.positions.max()) + 1
        scores = np.zeros((w.n_rows, deepest // c.indexer_block + 1), np.float32)
        n_scored = np.where(w.positions >= c.selection_width, (w.positions + 1) // c.indexer_block, 0).astype(np.int32)
        if self._watches("indexer.pooled.read"):
            blocks = np.arange(scores.shape[1], dtype=np.int32)
            self._see_cells("indexer.pooled.read", layer, pooled, w.slots, np.where(blocks < n_scored[:, None], blocks, -1))
        indexer.score_blocks(self.control, queries, pooled, w.slots, n_scored, scores)
        if self._watches("indexer.scores"):
            self._details(w, "indexer.scores", layer, scores, Place(lengths=n_scored))
        cells = np.full((w.n_rows, min(c.selection_width, deepest)), -1, np.int32)
        counts = np.empty(w.n_rows, np.int32)
        indexer.CHOOSERS[c.selection](self.control, scores, w.positions, c.indexer_block, c.selection_width, cells, counts)
        if self._watches("indexer.cells"):
            self._details(w, "indexer.cells", layer, cells, Place(lengths=counts))
        return cells, counts

    def _see_block(self, point: str, layer: int, state: np.ndarray, cells_per_block: int) -> None:
        """Show the blocks that rows complete, in state [slots, blocks * cells_per_block, ...]."""
        if self._watches(point):
            rows, cells = completed_blocks(self.window, self.config.indexer_block, cells_per_block)
            self._see_cells(point, layer, state, self.window.slots[rows], cells, rows)

    def moe(self, layer: int, mixed: np.ndarray) -> np.ndarray:
        """Return the routed and shared experts' combined output [rows, H]."""
        return self.mix_experts(layer, self.placed.of(layer).moe, mixed)

    def head(self, residual: np.ndarray) -> np.ndarray:
        """Return logits [len(logit_rows), vocabulary]."""
        if not len(self.window.logit_rows):
            return np.empty((0, self.config.vocabulary), np.float32)
        chosen = np.ascontiguousarray(residual[self.window.logit_rows])
        self.place = Place(rows=self.window.logit_rows)
        mixed, _ = self.read_streams(TOP, "head", self.placed.output_mixer, chosen)
        x = self._activations(mixed)
        self._see_codes("head", TOP, x)
        logits = self._times(self.placed.output, x)
        self._see_outline("logits", TOP, logits)
        return logits

    def close(self) -> None:
        """Release what this stage took from its device."""
        self.device.give_back(f"sessions of {self.placed.name}")
