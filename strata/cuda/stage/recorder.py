"""Recording a window pass: each block of the model as prepared launches on buffers of the workspace.

Given to the window pass in place of an executor, it computes nothing: it lists the launches that will.  A block's output is
written into the streams by the launch that reads them next (or by `flush`), and experts of a few rows are combined on that way.
Orders are the kernels'; which kernel serves a number of rows changes no bit.  Results are named to `taps` as they come about;
where somebody looks (`is_apart`), operations that one launch can join get launches of their own, with the same bits, and blocks
are written at once.  Does not know: graphs, stages' borders.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.cuda.attention.heads import IndexerInputs, launch_heads
from strata.cuda.attention.indexer import launch_scores
from strata.cuda.attention.selection import launch_selection
from strata.cuda.attention.split_attention import MOST_SIDE_BY_SIDE_ROWS, SPLIT, AttentionOutput, SplitScratch, launch_attention
from strata.cuda.card.launch import Launch
from strata.cuda.delta_net.chunk_scan import launch_any_scan
from strata.cuda.delta_net.gdn import launch_gate_norm, launch_prepare
from strata.cuda.delta_net.window_scan import launch_window_scan
from strata.cuda.experts.combine import Combined, launch_combine
from strata.cuda.floats.float_chunks import kind_of
from strata.cuda.memory.placed import FloatMatrix, Part
from strata.cuda.memory.workspace import PLACES, Lane
from strata.cuda.packed import products
from strata.cuda.packed.products import Coded
from strata.cuda.residual.lookup import launch_lookup
from strata.cuda.residual.ngrams import launch_convolve_add, launch_gate, launch_hash, launch_keep
from strata.cuda.residual.read_mix import fits, launch_read_mix
from strata.cuda.residual.streams import launch_low_rank_gate, launch_mix, launch_write_normalise
from strata.cuda.stage.projections import Projection, launch_projections
from strata.cuda.stage.record_moe import MoeRecorder
from strata.cuda.stage.state_taps import StateTaps, scored_blocks
from strata.cuda.stage.taps import NO_TAPS, TOP, NoTaps, fetched, of_logit_rows
from strata.rows import Place, Window

RAW_FORMAT = "f16"


@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """A stream read's result: float32 [rows, H] and its codes."""

    values: Any
    coded: Coded


class Recorder:
    """Lists the launches of one window shape; the block methods are those of `strata.windows.contract.Executor`."""

    def __init__(self, executor, lane: Lane, n_logits: int, keep: bool, most_cells: int, taps: NoTaps = NO_TAPS) -> None:
        self.device, self.config, self.placed, self.sessions = executor.device, executor.config, executor.placed, executor.sessions
        self.kv, self.table, self.work = executor.kv, executor.table, executor.work_for(lane.n_rows)
        self.lane, self.tables, self.n, self.keep = lane, lane.tables, lane.n_rows, keep
        self.n_logits, self.most_cells = n_logits, most_cells
        self.launches: list[Launch] = []
        self.residual = self.work.get("residual", self.n * self.config.residual_width)
        self.logits = None
        self._due: tuple | None = None
        self.meetings = executor.meetings
        self.taps, self._state = taps, StateTaps(taps, self.sessions, self.config, self.kv)
        taps.open(self.launches)

    # ---- blocks

    def embed(self):
        """The residual from the tokens' embeddings."""
        c, table = self.config, self.placed.embedding
        self._add(launch_lookup(self.device, table.type_name, table.raw, table.row_bytes, self.tables.tokens, self.n, c.hidden, c.n_streams, self.residual))
        self._see_streams("embed", TOP)
        return self.residual

    def ngram(self, layer: int, residual) -> None:
        self.flush()
        c, w, n, s = self.config, self.placed.of(layer).ngrams, self.n, self.sessions
        see, width = self.taps.see, c.residual_width
        rows = self.work.get("ngram rows", n * c.n_ple_heads, np.int64)
        self._state.history("read", layer)
        self._add(launch_hash(self.device, c, self.tables, s.history, w.multipliers, w.sizes, w.offsets, rows))
        see("ngram.rows", layer, rows, n, c.n_ple_heads)
        embedded = self.work.get("ngram embedding", n * c.ple_width)
        self._add(launch_lookup(self.device, w.table.type_name, w.table.raw, w.table.row_bytes, rows, n * c.n_ple_heads, w.table.columns, 1, embedded))
        see("ngram.embedding", layer, embedded, n, c.ple_width)
        x = Mixed(embedded, self.work.coded("ngram codes", n, c.ple_width))
        self._add(products.code(self.device, embedded, x.coded, n))
        self.taps.see_coded("ngram", layer, x.coded, n)
        key, value = self._together(x, (w.key, "ngram key"), (w.value, "ngram value"))
        see("ngram.key", layer, key, n, width)
        see("ngram.value", layer, value, n, c.hidden)
        gated = self.work.get("ngram gated", n * c.residual_width)
        conv_rows = self._kept_until_commit("ngram conv rows", c.residual_width, 0)
        self._add(launch_gate(self.device, c, n, residual, key, value, w.norm_key, w.norm_query, w.norm_conv, gated, conv_rows))
        see("ngram.gate", layer, gated, n, width)
        see("ngram.normed", layer, conv_rows, n, width)
        self._state.ngram_tail("read", layer)
        self._add(launch_convolve_add(self.device, c, self.tables, residual, gated, conv_rows, s.ngram_tail, w.conv))
        self._see_streams("ngram.residual", layer)
        if self.keep:
            self._add(launch_keep(self.device, c, self.tables, self.tables.count, conv_rows, s.ngram_tail, s.history))
            self._state.ngram_tail("stored", layer)
            self._state.history("stored", layer)

    def read_streams(self, layer: int, point: str, mixer: Part, residual) -> tuple[Mixed, Any]:
        normed = self.work.get("normed", self.n * self.config.residual_width)
        due, self._due = self._due or {}, None
        self._add(launch_write_normalise(self.device, self.config, residual, self.n, norm=mixer.norm, normed=normed, **due))
        self.taps.see(f"{point}.normed", layer, normed, self.n, self.config.residual_width)
        inject = None if mixer.inject is None else self.work.get(f"inject {point}", self.n * mixer.inject.n_out)
        return self._mix(mixer, normed, self.n, "mixed", inject, (point, layer)), inject

    def _mix(self, mixer: Part, normed, n_rows: int, name: str, inject=None, of: tuple[str, int] = ("", TOP), place=None) -> Mixed:
        """The mix of normed streams; `of` names point and layer for taps."""
        c, up, (point, layer) = self.config, mixer.up, of
        low = self.work.get(f"{name} low", n_rows * mixer.down.n_out)
        asked = [Projection(mixer.down, low)] + ([] if inject is None else [Projection(mixer.inject, inject)])
        self._add(launch_projections(self.device, asked, normed, None, n_rows))
        if inject is not None:
            self.taps.see(f"{point}.inject", layer, inject, n_rows, mixer.inject.n_out)
        mixed = Mixed(self.work.get(name, n_rows * c.hidden), self.work.coded(f"{name} codes", n_rows, c.hidden))
        in_tiles = n_rows > PLACES and kind_of(self.device.card.capability, up.n_in, up.n_out, n_rows) == "short tiles"
        if fits(c, up.n_in, up.type_name) and not in_tiles and not self.taps.is_apart:
            self._add(launch_read_mix(self.device, c, up.type_name, low, up.raw, up.n_in, normed, n_rows, mixed.values, mixed.coded))
            return mixed
        self._add(launch_low_rank_gate(self.device, low, n_rows, up.n_in, c.n_streams))
        self.taps.see(f"{point}.low", layer, low, n_rows, up.n_in, place)
        gate = self._floats(up, low, n_rows, f"{name} gate")
        self.taps.see(f"{point}.gate", layer, gate, n_rows, c.residual_width, place)
        self._add(launch_mix(self.device, c, normed, gate, n_rows, mixed.values, mixed.coded))
        self.taps.see(f"{point}.mixed", layer, mixed.values, n_rows, c.hidden, place, self._code_again(mixed, n_rows))
        return mixed

    def write_streams(self, layer: int, point: str, residual, y, inject) -> None:
        self._due = {"inject": inject, ("experts" if isinstance(y, Combined) else "y"): y}
        if self.taps.wants(f"{point}.residual"):
            self.flush()
            self._see_streams(f"{point}.residual", layer)

    def gdn(self, layer: int, mixed: Mixed):
        c, w, s, n = self.config, self.placed.of(layer).gdn, self.sessions, self.n
        number = s.gdn_layers.index(layer)
        inputs = self._kept_until_commit("gdn w", c.ssm_channels, number)
        u = self._kept_until_commit("gdn u", c.ssm_channels, number)
        g, beta = (self._kept_until_commit(f"gdn {name}", c.n_ssm_v_heads, number) for name in ("g", "beta"))
        self.taps.see_coded("gdn", layer, mixed.coded, n)
        u, z, alpha, logits = self._together(
            mixed, (w.qkv, "gdn u", u), (w.gate, "gdn z"), (w.alpha, "gdn alpha"), (w.beta, "gdn beta logits")
        )
        see, state, heads = self.taps.see, self._state, c.n_ssm_v_heads
        see("gdn.qkv", layer, u, n, c.ssm_channels)
        see("gdn.z", layer, z, n, c.ssm_inner)
        state.gdn_tail("read", layer)
        gated, coded = self.work.get("gdn gated", n * c.ssm_inner), self.work.coded("gdn codes", n, c.ssm_inner)
        read_scale = np.float32(1) / np.sqrt(np.float32(c.ssm_state))
        tail, memory = s.tail_of(layer), s.memory_of(layer)
        if n <= PLACES and not self.taps.is_apart:
            counters = self.work.constant("gdn counters", np.zeros(PLACES * c.n_ssm_qk_heads, np.int32))
            self._add(launch_window_scan(
                self.device, c, self.tables, self.keep, u, alpha, logits, tail, w.conv, w.dt_bias, w.decay, memory, read_scale, z, w.norm,
                counters, inputs, g, beta, gated, coded,
            ))
        else:
            o = self.work.get("gdn o", n * c.ssm_inner)
            self._add(launch_prepare(self.device, c, self.tables, u, alpha, logits, tail, w.conv, w.dt_bias, w.decay, inputs, g, beta))
            see("gdn.g", layer, g, n, heads)
            see("gdn.beta", layer, beta, n, heads)
            see("gdn.conv", layer, inputs, n, c.ssm_channels)
            state.memory("read", layer)
            self._add(launch_any_scan(
                self.device, c, self.tables, self.keep, inputs, g, beta, u, memory, tail, s.n_slots, read_scale, o, z, w.norm, gated, coded
            ))
            see("gdn.scan", layer, o, n, c.ssm_inner, None, lambda: [launch_gate_norm(self.device, c, o, z, w.norm, n, gated, coded)])
        if self.keep:
            state.memory("stored", layer)
            state.gdn_tail("stored", layer)
        return self._output("gdn", layer, w.output, Mixed(gated, coded))

    def qsa(self, layer: int, mixed: Mixed):
        c, w, n, cells = self.config, self.placed.of(layer).qsa, self.n, self.sessions.cells[layer]
        x = w.indexer
        self.taps.see_coded("qsa", layer, mixed.coded, n)
        projected, k, v, indexer_q, indexer_k = self._together(
            mixed, (w.q, "qsa q"), (w.k, "qsa k"), (w.v, "qsa v"), (x.q, "indexer q"), (x.k, "indexer k")
        )
        self._see_projected(layer, projected, k, v, indexer_k)
        asked = self.work.get("indexer queries", n * c.indexer_width)
        inputs = IndexerInputs(indexer_q, indexer_k, x.q_norm, x.k_norm, asked)
        queries = self.work.get("queries", n * c.attention_width)
        self._add(launch_heads(self.device, c, self.tables, self.kv, RAW_FORMAT, projected, k, v, w.q_norm, w.k_norm, self.table, queries, cells, inputs))
        self.taps.see("qsa.queries", layer, queries, n, (c.n_q_heads, c.head_dim))
        self.taps.see("indexer.q", layer, asked, n, (c.n_indexer_heads, c.indexer_dim))
        self._state.kv_stored(layer)
        self._state.indexer_stored(layer)
        chosen, counts = self._select(layer, cells, asked)
        out = AttentionOutput(
            projected, self.work.get("attended", n * c.attention_width), self.work.get("qsa gated", n * c.attention_width),
            self.work.coded("qsa codes", n, c.attention_width),
        )
        self._state.kv_read(layer, lambda window: self._cells_read(window, chosen, counts))
        most = min(self.most_cells, c.selection_width)
        scale = np.float32(1) / np.sqrt(np.float32(c.head_dim))
        self._add(launch_attention(
            self.device, c, self.tables, self.kv, most, queries, cells, chosen, counts, c.selection_width, scale, self._splits(), out
        ))
        self.taps.see("qsa.attended", layer, out.attended, n, (c.n_q_heads, c.head_dim), is_final=True)
        return self._output("qsa", layer, w.output, Mixed(out.gated, out.coded))

    def _select(self, layer: int, cells, queries) -> tuple:
        """Return the chosen cells and their counts; (None, None) where every row takes all its cells."""
        c = self.config
        if self.most_cells <= c.selection_width:
            return None, None
        most_blocks = self.most_cells // c.indexer_block
        self._state.pooled_read(layer)
        scores = self.work.get("scores", self.n * most_blocks)
        self._add(launch_scores(self.device, c, self.tables, queries, cells.pooled, cells.n_blocks, most_blocks, scores))
        self.taps.see("indexer.scores", layer, scores, self.n, most_blocks, lambda window, kept: Place(lengths=scored_blocks(window, c)))
        chosen, counts = self.work.get("cells", self.n * c.selection_width, np.int32), self.work.get("counts", self.n, np.int32)
        self._add(launch_selection(self.device, c, self.tables, scores, most_blocks, chosen, counts))
        self.taps.see("indexer.cells", layer, chosen, self.n, c.selection_width, lambda window, kept: Place(lengths=fetched(counts, self.n)))
        return chosen, counts

    def _splits(self) -> SplitScratch:
        c = self.config
        most = MOST_SIDE_BY_SIDE_ROWS * (-(-c.selection_width // SPLIT))
        heads = c.n_q_heads * most
        return SplitScratch(most, self.work.get("tops", heads), self.work.get("totals", heads), self.work.get("triples", heads * c.head_dim))

    def moe(self, layer: int, mixed: Mixed):
        """The experts' outputs, to be combined by the launch that writes them; combined here in prompt chunks and where the block is seen."""
        # Made for each block and not kept: a recorder must not refer to itself, or dropped programs would hold their buffers.
        tier = None if self.meetings is None else self.meetings.recorder(layer, self.work, self.n, self._add)
        experts = MoeRecorder(self.device, self.config, self.work, self.n, self._add, self.taps, tier)
        combined = experts.block(self.placed.of(layer).moe, mixed.values, mixed.coded, layer)
        if self.n <= PLACES and not self.taps.is_apart:
            return combined
        # What an attention block left there was written into the streams before they were read for the experts.
        y = self.work.get("block output", self.n * self.config.hidden)
        self._add(launch_combine(self.device, self.config.hidden, combined, self.n, y))
        self.taps.see("moe.output", layer, y, self.n, self.config.hidden)
        return y

    def head(self, residual):
        """Logits [n_logits, vocabulary] of the chosen rows."""
        self.flush()
        c, mixer, m = self.config, self.placed.output_mixer, self.n_logits
        if not m:
            return None
        normed = self.work.get("head normed", m * c.residual_width)
        self._add(launch_write_normalise(self.device, c, residual, m, norm=mixer.norm, normed=normed, chosen=self.lane.logit_rows))
        self.taps.see("head.normed", TOP, normed, m, c.residual_width, of_logit_rows)
        mixed = self._mix(mixer, normed, m, "head mixed", None, ("head", TOP), of_logit_rows)
        self.taps.see_coded("head", TOP, mixed.coded, m, of_logit_rows)
        self.logits = self._product(self.placed.output, mixed, m, self.work.get("logits", m * c.vocabulary))
        return self.logits

    def flush(self) -> None:
        """Write what is due into the streams."""
        if self._due:
            self._add(launch_write_normalise(self.device, self.config, self.residual, self.n, **self._due))
            self._due = None

    # ---- taps

    def _see_streams(self, point: str, layer: int) -> None:
        self.taps.see(point, layer, self.residual, self.n, (self.config.n_streams, self.config.hidden))

    def _see_projected(self, layer: int, projected, k, v, indexer_k) -> None:
        c, n, see = self.config, self.n, self.taps.see
        see("qsa.q", layer, projected, n, 2 * c.attention_width)
        see("qsa.k", layer, k, n, c.n_kv_heads * c.head_dim)
        see("qsa.v", layer, v, n, c.n_kv_heads * c.head_dim)
        see("indexer.k", layer, indexer_k, n, c.indexer_dim)

    def _output(self, name: str, layer: int, matrix, gated: Mixed):
        """The output product of a block from its gated heads."""
        n, see = self.n, self.taps.see
        see(f"{name}.gated", layer, gated.values, n, gated.coded.n, None, self._code_again(gated, n))
        self.taps.see_coded(f"{name}.gated", layer, gated.coded, n)
        out = self._times(matrix, gated, "block output")
        see(f"{name}.output", layer, out, n, self.config.hidden)
        return out

    def _code_again(self, x: Mixed, n_rows: int):
        return lambda: [products.code(self.device, x.values, x.coded, n_rows)]

    def _cells_read(self, window: Window, chosen, counts) -> np.ndarray:
        """The cells that each row attends to, int32 [rows, n], negative behind the last."""
        if chosen is None:
            cells = np.arange(int(window.positions.max()) + 1, dtype=np.int32)
            return np.where(cells <= window.positions[:, None], cells, -1)
        width = self.config.selection_width
        cells = fetched(chosen, self.n * width).reshape(self.n, width)
        return np.where(np.arange(width) < fetched(counts, self.n)[:, None], cells, -1)

    # ---- helpers

    def _times(self, matrix, x: Mixed, name: str, out=None):
        out = self.work.get(name, self.n * matrix.n_out) if out is None else out
        return self._product(matrix, x, self.n, out)

    def _together(self, x: Mixed, *asked) -> list:
        """Return the products of x with matrices, asked for as (matrix, name) or (matrix, name, where they go)."""
        made = [Projection(matrix, self.work.get(name, self.n * matrix.n_out) if not out else out[0]) for matrix, name, *out in asked]
        self._add(launch_projections(self.device, made, x.values, x.coded, self.n))
        return [one.out for one in made]

    def _product(self, matrix, x: Mixed, n_rows: int, out):
        if isinstance(matrix, FloatMatrix):
            self._add(products.floats(self.device, matrix.type_name, matrix.raw, matrix.n_in, matrix.n_out, x.values, n_rows, out))
        else:
            self._add(products.dense(self.device, matrix, x.coded, n_rows, out))
        return out

    def _floats(self, matrix: FloatMatrix, x, n_rows: int, name: str):
        out = self.work.get(name, n_rows * matrix.n_out)
        self._add(products.floats(self.device, matrix.type_name, matrix.raw, matrix.n_in, matrix.n_out, x, n_rows, out))
        return out

    def _kept_until_commit(self, name: str, n_values: int, number: int):
        """A buffer [rows, n_values]; in a window that is not kept, a recurrent layer's own part of its lane."""
        if self.keep:
            return self.work.get(name, self.n * n_values)
        n_layers = max(1, len(self.sessions.gdn_layers))
        each = self.n * n_values
        whole = self.work.get(f"{name} of lane {self.lane.number} with {self.n} rows", n_layers * each)
        return whole[number * each : (number + 1) * each]

    def _add(self, launches) -> None:
        """Append launches.  A decode window's start early, but for the first: copies of tokens and rows are no kernels, nor are taps."""
        for launch in [launches] if isinstance(launches, Launch) else launches:
            if self.launches and self.n <= PLACES and self.taps is NO_TAPS:
                launch.follow()
            self.launches.append(launch)
