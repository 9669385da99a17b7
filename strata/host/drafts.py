"""The draft layer on the host: its cells, and the proposals made from them.

MODEL.md section 5.  Cell i of a slot pairs the trunk's final residual at position i with the token at i + 1 and guesses the
token at i + 2.  After each window whose rows it was given (`hold`), `build` makes the cells of the kept rows: their K and V
only, and of each slot's newest cell (its *tip*) also the streams.  `propose` runs the layer from the tip; given the tokens
chosen, the next call chains on from the layer's own streams.  Chain cells lie behind the slot's own and are forgotten when
the next cells are built.  A slot may lack cells (positions that were never given): the layer then attends to those it has.

Attention is the trunk's: the ascending list of cells is cut at every 64th rank.  The streams of a cell are
Q[c] = fc_hidden . (rms(R) * hnorm)[c] + e, one addition.  Nothing here can change an answer: proposals are verified.
Shapes: residual R, streams Q float32 [rows, C, H].  Does not know: what a proposal is worth, which windows are verified.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.host import attention, streams
from strata.host.blocks import HostBlocks
from strata.host.cells import cell_format
from strata.host.device import HostDevice
from strata.host.draft_picks import pick_drafts
from strata.host.placed_drafts import PlacedDrafts
from strata.model.config import ModelConfig
from strata.numerics.rotary import rotary_table
from strata.numerics.rounding import RoundingMode
from strata.rows import KeptRows, Window, WindowCosts

COSTS = WindowCosts(row=0.26, draft=0.1)
"""Measured on two cores (docs/log.md)."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposals:
    """One draft per asked slot: tokens int32 [n], their probabilities float32 [n], logits float32 [n, draft ids]."""

    tokens: np.ndarray
    probabilities: np.ndarray
    logits: np.ndarray


class DraftCells:
    """K/V of the draft layer and the positions that it has, per slot; `counts[slot]` of them, ascending."""

    def __init__(self, config: ModelConfig, n_slots: int, context: int, kv: str) -> None:
        form = cell_format(kv)
        shape = (n_slots, context, config.n_kv_heads)
        scales = (*shape, form.n_scales(config.head_dim))
        self.k_codes, self.v_codes = (np.zeros((*shape, config.head_dim), form.code_type) for _ in range(2))
        self.k_scales, self.v_scales = np.zeros(scales, np.uint16), np.zeros(scales, np.uint16)
        self.positions = np.zeros((n_slots, context), np.int32)
        self.counts = np.zeros(n_slots, np.int32)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.k_codes, self.v_codes, self.k_scales, self.v_scales, self.positions))

    def listed(self, slots: Sequence[int], chained: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return (cells int32 [n, width], counts int32 [n]) of slots, chain cells included."""
        counts = self.counts[slots] + np.asarray(chained, np.int32)
        return np.ascontiguousarray(self.positions[slots, : counts.max()]), counts


class HostDrafts(HostBlocks):
    """The draft layer of one stage, for all its slots; the slots share its weights."""

    costs = COSTS
    replays = False

    def __init__(
        self, device: HostDevice, config: ModelConfig, placed: PlacedDrafts, mode: RoundingMode, kv: str, n_slots: int, context: int
    ) -> None:
        self.device, self.config, self.placed, self.mode, self.kv = device, config, placed, mode, kv
        self.layer = config.n_layers
        self.control, self.eps = device.team.control, np.float32(config.rms_epsilon)
        self.table = rotary_table(config.rope_base, config.rope_dims, context)
        self.cells = DraftCells(config, n_slots, context, kv)
        device.take("draft layer", placed.weight_bytes)
        device.take("draft cells", self.cells.nbytes)
        self._held: dict[Window, np.ndarray] = {}
        self._streams = np.zeros((n_slots, config.n_streams, config.hidden), np.float32)
        self._own = np.zeros_like(self._streams)
        self._mixed = np.zeros((n_slots, config.hidden), np.float32)
        self._inject = np.zeros((n_slots, config.n_streams), np.float32)
        self._position = np.full(n_slots, -1, np.int32)
        self._chained = np.zeros(n_slots, np.int32)

    @property
    def cell_bytes_per_slot(self) -> int:
        """Bytes of one slot's cells: what a slot's drafter has of its own."""
        return self.cells.nbytes // len(self.cells.counts)

    @property
    def token_ids(self) -> np.ndarray:
        """The draft vocabulary, ascending."""
        return self.placed.token_ids

    # ---- cells

    def hold(self, window: Window, residual: np.ndarray) -> None:
        """Remember a window's final residual rows until `build` or `forget`; the array is the window's own."""
        self._held[window] = residual

    def forget(self, window: Window) -> None:
        """Drop the rows of a window whose cells are not wanted."""
        self._held.pop(window, None)

    def build(self, parts: Sequence[KeptRows]) -> None:
        """Make the cells of windows' kept rows; a slot's windows come in order.  The windows' rows are no longer held."""
        residuals = [self._chosen(part) for part in parts]
        residual = residuals[0] if len(residuals) == 1 else np.concatenate(residuals)
        if not len(residual):
            return
        kept = [(segment, int(n), tokens) for part in parts for segment, n, tokens in zip(part.window.segments, part.kept, part.next_tokens, strict=True) if n]
        slots = np.array([segment.slot for segment, n, _ in kept for _ in range(n)], np.int32)
        positions = np.array([segment.start + i for segment, n, _ in kept for i in range(n)], np.int32)
        made = self._pair(residual, np.array([token for _, n, tokens in kept for token in tokens[:n]], np.int32))
        mixed, inject = self._place(made, slots, positions)
        for segment, n, _ in kept:
            self._append(segment.slot, segment.start, n)
        newest = {int(slot): row for row, slot in enumerate(slots)}
        last = np.array(list(newest.values()))
        self._set_tips(slots[last], positions[last], made[last], mixed[last], inject[last])
        self._chained[slots[last]] = 0

    def _chosen(self, part: KeptRows) -> np.ndarray:
        """Return the kept rows of a window that was held, and hold them no longer."""
        residual, window = self._held.pop(part.window), part.window
        if (part.kept == window.count).all():
            return residual
        rows = [window.first[s] + i for s in range(len(part.kept)) for i in range(part.kept[s])]
        return residual[np.array(rows, np.int64)]

    def clear(self, slot: int) -> None:
        """Start a new session in a slot; rows of it that are still held are of the old one."""
        for window in list(self._held):  # another thread may be holding more
            if slot in window.segment_slot:
                self._held.pop(window, None)
        self.cells.counts[slot], self._position[slot], self._chained[slot] = 0, -1, 0

    def copy_slot(self, source: int, target: int) -> None:
        """Copy a session's cells and tip from one slot to another; chain cells stay behind."""
        cells = self.cells
        per_slot = (cells.k_codes, cells.k_scales, cells.v_codes, cells.v_scales, cells.positions, cells.counts)
        for array in (*per_slot, self._streams, self._own, self._mixed, self._inject, self._position, self._chained):
            array[target] = array[source]

    def has_tip(self, slot: int, position: int) -> bool:
        """Whether a slot's newest cell is the one at `position`: proposals then continue the text."""
        return int(self._position[slot]) - int(self._chained[slot]) == position

    def close(self) -> None:
        """Release what the layer took from its device."""
        self.device.give_back("draft cells")
        self.device.give_back("draft layer")

    # ---- proposals

    def propose(self, slots: Sequence[int], tokens: Sequence[int] | None = None) -> Proposals:
        """Guess one token per slot: from the tips, or behind the drafts `tokens` that the call before gave."""
        chosen = np.array(slots, np.int32)
        if tokens is not None:
            self._chain(chosen, np.array(tokens, np.int32))
        made = self._streams[chosen]
        self.rows_begin(len(chosen))
        streams.write(made, self._attend(chosen), self._inject[chosen])
        mixed, inject = self.read_streams(self.layer, "draft.moe", self.placed.moe_mixer, made)
        streams.write(made, self.mix_experts(self.layer, self.placed.moe, mixed), inject)
        self._own[chosen] = made
        mixed, _ = self.read_streams(self.layer, "draft.head", self.placed.output_mixer, made)
        logits = self._times(self.placed.head, self._activations(mixed))
        self._see("draft.logits", self.layer, logits)
        best, probabilities = np.empty(len(chosen), np.int32), np.empty(len(chosen), np.float32)
        pick_drafts(logits, best, probabilities)
        return Proposals(self.placed.token_ids[best], probabilities, logits)

    def _chain(self, slots: np.ndarray, tokens: np.ndarray) -> None:
        """Make the chain cells behind the tips from the layer's own streams and the drafts chosen."""
        positions = self._position[slots] + 1
        made = self._pair(self._own[slots], tokens)
        mixed, inject = self._place(made, slots, positions)
        self.cells.positions[slots, self.cells.counts[slots] + self._chained[slots]] = positions
        self._chained[slots] += 1
        self._set_tips(slots, positions, made, mixed, inject)

    # ---- steps

    def _pair(self, residual: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the streams Q [rows, C, H] of residuals and the tokens behind them."""
        c, placed, n_rows = self.config, self.placed, len(tokens)
        self.rows_begin(n_rows)
        hidden = np.empty((n_rows, c.residual_width), np.float32)
        streams.normalise(self.control, residual.reshape(n_rows, 1, -1), placed.hidden_norm, self.eps, hidden)
        embedded = np.empty((n_rows, c.hidden), np.float32)
        streams.normalise(self.control, placed.embedding.rows(tokens)[:, None, :], placed.embedding_norm, self.eps, embedded)
        made = self._times(placed.fc_hidden, self._activations(hidden.reshape(-1, c.hidden))).reshape(n_rows, c.n_streams, c.hidden)
        made += self._times(placed.fc_embedding, self._activations(embedded))[:, None, :]
        return made

    def _place(self, made: np.ndarray, slots: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Write the cells of streams made; return what the attention block reads of them: mixed and inject."""
        c, placed, cells = self.config, self.placed.attention, self.cells
        mixed, inject = self.read_streams(self.layer, "draft.attention", self.placed.attention_mixer, made)
        x = self._activations(mixed)
        keys = self._heads(self._times(placed.k, x), placed.k_norm, c.n_kv_heads, c.head_dim, positions)
        store = attention.store_cells(self.kv)
        store(keys, slots, positions, cells.k_codes, cells.k_scales)
        store(self._times(placed.v, x).reshape(keys.shape), slots, positions, cells.v_codes, cells.v_scales)
        return mixed, inject

    def _attend(self, slots: np.ndarray) -> np.ndarray:
        """Return the attention's output [n, H] for the newest cells of slots."""
        c, placed, cells = self.config, self.placed.attention, self.cells
        projected = self._times(placed.q, self._activations(self._mixed[slots]))
        queries = self._heads(projected, placed.q_norm, c.n_q_heads, 2 * c.head_dim, self._position[slots])
        listed, counts = cells.listed(slots, self._chained[slots])
        out = np.empty_like(queries)
        attention.attend(self.kv)(
            self.control, queries, cells.k_codes, cells.k_scales, cells.v_codes, cells.v_scales, slots, listed, counts, placed.score_scale, out
        )
        gated = np.empty((len(slots), c.attention_width), np.float32)
        attention.gate(out, projected, gated)
        return self._times(placed.output, self._activations(gated))

    def _append(self, slot: int, start: int, n_rows: int) -> None:
        at = int(self.cells.counts[slot])
        self.cells.positions[slot, at : at + n_rows] = start + np.arange(n_rows)
        self.cells.counts[slot] = at + n_rows

    def _set_tips(self, slots: np.ndarray, positions: np.ndarray, made: np.ndarray, mixed: np.ndarray, inject: np.ndarray) -> None:
        self._position[slots], self._streams[slots] = positions, made
        self._mixed[slots], self._inject[slots] = mixed, inject
