"""Recording the draft layer's two steps: making cells of kept rows, and proposing one token per slot.

The recorder of the trunk's windows with other weights, cells and index arrays; streams, experts and products are its own.
What the host remembers of a newest cell (`mixed`, `inject`) is computed again from its streams, and the cell's key and value
with it: the same operations on the same bits.  Orders as in host/drafts.py.  Does not know: graphs, when cells are made.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.cuda.attention.heads import launch_heads
from strata.cuda.attention.split_attention import SPLIT, AttentionOutput, SplitScratch, launch_attention
from strata.cuda.drafting.draft_cells import launch_list, launch_move, launch_note
from strata.cuda.drafting.drafts import launch_add_to_streams, launch_draft_picks
from strata.cuda.memory.window_tables import WindowTables
from strata.cuda.packed import products
from strata.cuda.residual.lookup import launch_lookup
from strata.cuda.residual.streams import launch_write_normalise
from strata.cuda.stage.recorder import RAW_FORMAT, Mixed, Recorder

PARTS = 7
TOP = -1
MOST_PAIRS = 4096
"""Pairs of a row and a split of its cells that run side by side at most; what needs more goes through its splits in turn."""


@dataclass(frozen=True, slots=True, eq=False)
class DraftTables:
    """Index arrays int32 [n_rows] of one step on the card, parts of `block`.

    tokens      the token behind each row
    counts      cells of the row's slot up to and with its own
    sources     where the row's residual lies: a row held, or a slot
    newest      the slot whose newest cell the row is, -1 for none
    rows        0, 1, ..
    """

    block: Any
    tables: WindowTables
    tokens: Any
    slots: Any
    positions: Any
    counts: Any
    sources: Any
    newest: Any
    rows: Any
    n_rows: int
    number: int = 0
    logit_rows: Any = None


def tables_of(block, n_rows: int) -> DraftTables:
    """Cut a block of PARTS * n_rows int32 into index arrays."""
    tokens, slots, positions, counts, sources, newest, rows = (block[i * n_rows : (i + 1) * n_rows] for i in range(PARTS))
    # Dense attention reads no segments: the slots stand for them.
    window = WindowTables(n_rows, n_rows, tokens, slots, positions, slots, slots, slots, slots)
    return DraftTables(block[: PARTS * n_rows], window, tokens, slots, positions, counts, sources, newest, rows, n_rows)


class DraftRecorder(Recorder):
    """Lists the launches of one step of the draft layer for n rows; `made`, the rows' streams, is the residual."""

    def __init__(self, layer, tables: DraftTables, most_cells: int) -> None:
        super().__init__(layer, tables, tables.n_rows, True, most_cells)
        self.index, self.cells = layer.layer, layer.cells
        self.results = None

    # ---- steps

    def build(self, held) -> None:
        """Cells of rows of `held`; the newest rows' streams become their slots' own."""
        t, made = self.lane, self.residual
        self._pair(held)
        mixed, _ = self.read_streams(self.index, "draft.attention", self.placed.cells_mixer, made)
        self._place(mixed, None, None)
        self._add(launch_note(self.device, self.cells, t.slots, t.positions, t.counts, self.n))
        self._add(launch_move(self.device, made, t.rows, self.cells.newest, t.newest, self.n, self.config.residual_width))

    def propose(self, is_chained: bool) -> None:
        """One draft per row: from its slot's newest cell, or from a cell made of the layer's own streams and `tokens`."""
        t, c, w, made, cells = self.lane, self.config, self.placed, self.residual, self.cells
        width = c.residual_width
        if is_chained:
            self._pair(cells.own)
            self._add(launch_move(self.device, made, t.rows, cells.newest, t.slots, self.n, width))
        else:
            self._add(launch_move(self.device, cells.newest, t.slots, made, t.rows, self.n, width))
        mixed, inject = self.read_streams(self.index, "draft.attention", w.attention_mixer, made)
        self.write_streams(self.index, "draft.attention", made, self._attend(mixed), inject)
        mixed, inject = self.read_streams(self.index, "draft.moe", w.moe_mixer, made)
        self.write_streams(self.index, "draft.moe", made, self.moe(self.index, mixed), inject)
        mixed, _ = self.read_streams(TOP, "draft.head", w.output_mixer, made)
        self._add(launch_move(self.device, made, t.rows, cells.own, t.slots, self.n, width))
        self._pick(mixed)

    # ---- parts

    def _pair(self, source) -> None:
        """The streams of residual rows and the tokens behind them: Q[c] = fc_hidden . (rms(R) * hnorm)[c] + e."""
        c, w, n, t, work = self.config, self.placed, self.n, self.lane, self.work
        hidden = work.get("draft hidden", n * c.residual_width)
        whole, one = (1, c.residual_width), (1, c.hidden)
        self._add(launch_write_normalise(self.device, c, source, n, norm=w.hidden_norm, normed=hidden, chosen=t.sources, streams=whole))
        table, found, embedded = w.embedding, work.get("draft tokens", n * c.hidden), work.get("draft embedding", n * c.hidden)
        self._add(launch_lookup(self.device, table.type_name, table.raw, table.row_bytes, t.tokens, n, c.hidden, 1, found))
        self._add(launch_write_normalise(self.device, c, found, n, norm=w.embedding_norm, normed=embedded, streams=one))
        self._product(w.fc_hidden, self._coded(hidden, "draft hidden codes", n * c.n_streams), n * c.n_streams, self.residual)
        e = self._times(w.fc_embedding, self._coded(embedded, "draft embedding codes", n), "draft e")
        self._add(launch_add_to_streams(self.device, c, self.residual, e, n))

    def _coded(self, values, name: str, n_rows: int) -> Mixed:
        x = Mixed(values, self.work.coded(name, n_rows, self.config.hidden))
        self._add(products.code(self.device, values, x.coded, n_rows))
        return x

    def _place(self, mixed: Mixed, projected, queries) -> None:
        """Write the rows' cells, and fill the queries where they are wanted."""
        w = self.placed.attention
        k, v = self._times(w.k, mixed, "draft k"), self._times(w.v, mixed, "draft v")
        q_norm = None if projected is None else w.q_norm
        self._add(launch_heads(
            self.device, self.config, self.tables, self.kv, RAW_FORMAT, projected, k, v, q_norm, w.k_norm, self.table, queries,
            self.cells.attention, None,
        ))

    def _attend(self, mixed: Mixed):
        """The attention's output over all cells that the rows' slots have."""
        c, w, n, t, work, most = self.config, self.placed.attention, self.n, self.lane, self.work, self.most_cells
        projected, queries = self._times(w.q, mixed, "draft q"), work.get("draft queries", n * c.attention_width)
        self._place(mixed, projected, queries)
        chosen = work.get("draft chosen", n * most, np.int32)
        self._add(launch_list(self.device, self.cells, t.slots, t.positions, t.counts, n, most, chosen))
        out = AttentionOutput(
            projected, work.get("draft attended", n * c.attention_width), work.get("draft gated", n * c.attention_width),
            work.coded("draft gated codes", n, c.attention_width),
        )
        scale = np.float32(1) / np.sqrt(np.float32(c.head_dim))
        self._add(launch_attention(
            self.device, c, self.tables, self.kv, most, queries, self.cells.attention, chosen, t.counts, most, scale, self._scratch(), out
        ))
        return self._times(w.output, Mixed(out.gated, out.coded), "block output")

    def _scratch(self) -> SplitScratch:
        c = self.config
        pairs = min(self.n * -(-self.most_cells // SPLIT), MOST_PAIRS)
        heads = c.n_q_heads * pairs
        return SplitScratch(pairs, self.work.get("tops", heads), self.work.get("totals", heads), self.work.get("triples", heads * c.head_dim))

    def _pick(self, mixed: Mixed) -> None:
        """Logits of the draft vocabulary, the best index and its probability; both in one buffer."""
        n, head = self.n, self.placed.head
        self.logits = self._product(head, mixed, n, self.work.get("draft logits", n * head.n_out))
        self.results = self.work.get("draft results", 2 * n, np.int32)[: 2 * n]
        best, probability = self.results[:n], self.results[n:].view(np.float32)
        self._add(launch_draft_picks(self.device, self.logits, n, head.n_out, best, probability))
