"""Blocks of the host that keep no state: streams, experts, and the products and norms around them.

What the trunk's executor and the draft layer share.  A subclass sets `config`, `mode`, `control`, `eps`, `table`,
`window` and calls `rows_begin` before the blocks of a window.  With a `tier`, a layer's experts are computed in several
places (`ExpertPart`); the results lie by entry, and combine in rank order.  Does not know: sessions, layers' order, why an
expert lies where it does.
"""

import numpy as np

from strata.errors import PoolJobError
from strata.host import attention, experts, streams
from strata.host.chunk_buffers import ChunkBuffers
from strata.host.matrix import Activations, Entries, Matrix
from strata.host.expert_parts import ExpertPart, ExpertTier, resident_part
from strata.host.placed import PlacedMixer, PlacedMoe
from strata.host.taps import Taps
from strata.model.config import ModelConfig
from strata.numerics.rounding import RoundingMode
from strata.rows import WHOLE, Place

CANONICAL_SPAN = 32
CODED = ("ngram", "gdn", "gdn.gated", "qsa", "qsa.gated", "moe", "moe.hidden", "moe.shared.hidden", "head")
CODE_POINTS = {point: (f"{point}.codes", f"{point}.scales") for point in CODED}
"""Activations that products with quantised weights take, and the points at which their codes and scales are shown."""
ENTRY_POINTS = ("moe.hidden", "moe.experts", *CODE_POINTS["moe.hidden"])
"""Points with one row per entry: a row of the window at one of its experts."""


class HostBlocks(Taps):
    """Stateless blocks over the rows of one window; shapes rows first."""

    config: ModelConfig
    mode: RoundingMode
    control: np.ndarray
    eps: np.float32
    table: np.ndarray
    chunk_buffers: ChunkBuffers | None = None
    """Where a prompt chunk's rows lie; None: in arrays of the window's own."""
    tier: ExpertTier | None = None
    """Where a layer's experts lie; None: all on this device."""
    routed: np.ndarray | None = None
    """Counts of routed entries, int32 [2, layers, experts] (decoded, read), where somebody wants them."""

    def rows_begin(self, n_rows: int) -> None:
        """Say how many rows the next blocks have; they are the window's own, in order."""
        self._places_begin()
        self._spans = np.full(n_rows, self._device_span, np.int32)

    @property
    def _device_span(self) -> int:
        """The span of what a device codes; negative where its scales are rounded to binary16."""
        return -CANONICAL_SPAN if self.mode.half_scales else CANONICAL_SPAN

    def read_streams(self, layer: int, point: str, mixer: PlacedMixer, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return (mixed [rows, H], inject [rows, C] or None)."""
        rows, n_streams, hidden = residual.shape
        normed = self._buffer("normed", (rows, n_streams * hidden))
        streams.normalise(self.control, residual, mixer.norm, self.eps, normed)
        self._see(f"{point}.normed", layer, normed)
        x = self._activations(normed)
        low = self._times(mixer.down, x)
        streams.low_rank_gate(low, np.float32(n_streams))
        self._see(f"{point}.low", layer, low)
        gate = self._times(mixer.up, self._activations(low))
        self._see(f"{point}.gate", layer, gate)
        mixed = self._buffer("mixed", (rows, hidden))
        streams.mix(self.control, normed, gate, n_streams, mixed)
        self._see(f"{point}.mixed", layer, mixed)
        inject = None if mixer.inject is None else self._times(mixer.inject, x)
        if inject is not None:
            self._see(f"{point}.inject", layer, inject)
        return mixed, inject

    def write_streams(self, layer: int, point: str, residual: np.ndarray, y: np.ndarray, inject: np.ndarray) -> None:
        """Add a block's output to the residual, in place."""
        streams.write(residual, y, inject)
        self._see_outline(f"{point}.residual", layer, residual)

    def mix_experts(self, layer: int, placed: PlacedMoe, mixed: np.ndarray) -> np.ndarray:
        """Return the routed and shared experts' combined output [rows, H]."""
        c = self.config
        x = self._activations(mixed)
        self._see_codes("moe", layer, x)
        logits = self._times(placed.router, x)
        self._see("moe.router", layer, logits)
        rows = mixed.shape[0]
        ids, weights = np.empty((rows, c.n_used), np.int32), np.empty((rows, c.n_used), np.float32)
        experts.route(logits, ids, weights)
        self._see("moe.ids", layer, ids)
        self._see("moe.weights", layer, weights)
        outputs, entry_of = self._routed(layer, placed, x, ids)
        self.place = WHOLE
        shared_hidden = self._ffn(placed.shared_gate, placed.shared_up, x, self._spans)
        self._see("moe.shared.hidden", layer, shared_hidden.values)
        self._see_codes("moe.shared.hidden", layer, shared_hidden)
        shared = self._times(placed.shared_down, shared_hidden)
        self._see("moe.shared", layer, shared)
        shared_gate = self._times(placed.shared_router, x)
        self._see("moe.shared.gate", layer, shared_gate)
        y = self._buffer("combined", (rows, c.hidden))
        experts.combine(outputs, entry_of, weights, shared, shared_gate, y)
        self._see("moe.output", layer, y)
        return y

    def _routed(self, layer: int, placed: PlacedMoe, x: Activations, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (outputs [entries, H] of the routed experts, where each (row, rank) lies among them)."""
        entries, entry_of, parts = self._parts(layer, placed, ids)
        self._place_entries(entries)
        spans, source = self._entry_spans(entries, parts, x)
        n_entries, width = entries.n_entries, placed.gate.n_out
        gates, ups = self._buffer("gates", (n_entries, width)), self._buffer("ups", (n_entries, width))
        for part in parts:
            own = part.entries(entries, entries.rows)
            self._compute(layer, part, part.gate, source, own, gates)
            self._compute(layer, part, part.up, source, own, ups)
        experts.activate(gates, ups)
        hidden = Activations(gates, self.control, spans, self.mode.half_scales)
        self._see("moe.hidden", layer, gates)
        self._see_codes("moe.hidden", layer, hidden)
        outputs, lines = self._buffer("outputs", (n_entries, self.config.hidden)), np.arange(n_entries, dtype=np.int32)
        for part in parts:
            self._compute(layer, part, part.down, hidden, part.entries(entries, lines), outputs)
        self._see("moe.experts", layer, outputs)
        return outputs, entry_of

    def _parts(self, layer: int, placed: PlacedMoe, ids: np.ndarray) -> tuple[Entries, np.ndarray, tuple[ExpertPart, ...]]:
        """Return the layer's entries, where each (row, rank) lies among them, and who computes them."""
        if self.routed is not None:
            self.routed[int(self.window.is_prompt), layer] += np.bincount(ids.reshape(-1), minlength=self.config.n_experts).astype(np.int32)
        if self.tier is not None:
            return self.tier.plan(layer, ids, self.window.is_prompt)
        entries, entry_of = self._group(ids)
        return entries, entry_of, (resident_part(placed, entries),)

    def _compute(self, layer: int, part: ExpertPart, matrix: Matrix, x: Activations, entries: Entries, out: np.ndarray) -> None:
        """Compute a part's entries into their lines of `out`; raises PoolJobError where a job of the pool fails."""
        with part.clock:
            try:
                matrix.times(x, self.mode.coded, self.control, entries, out)
            except Exception as error:
                if not part.in_pool:
                    raise
                raise PoolJobError(layer, error) from error

    def _group(self, ids: np.ndarray) -> tuple[Entries, np.ndarray]:
        n_entries = ids.size
        distinct, starts = np.empty(n_entries, np.int32), np.empty(n_entries + 1, np.int32)
        rows, entry_of = np.empty(n_entries, np.int32), np.empty(ids.shape, np.int32)
        n = experts.group_entries(ids, distinct, starts, rows, entry_of, np.empty(self.config.n_experts, np.int32))
        return Entries(distinct[:n], starts[: n + 1], rows), entry_of

    def _entry_spans(self, entries: Entries, parts: tuple[ExpertPart, ...], x: Activations) -> tuple[np.ndarray, Activations]:
        """Spans of the entries' hidden rows, and the activation rows, once per kind of coding; the entries' rows are moved there.

        The pool may code otherwise than a device, and an expert's lone row may have a wider span.
        """
        lone_span = self.mode.lone_expert_span
        spans = np.full(entries.n_entries, self._device_span, np.int32)
        if not self.mode.coded or (lone_span == CANONICAL_SPAN and not self.mode.half_scales):
            return spans, x
        for part in parts:
            if part.in_pool:
                spans[entries.starts[part.first] : entries.starts[part.last]] = CANONICAL_SPAN
        if lone_span != CANONICAL_SPAN:
            sizes = np.diff(entries.starts)
            spans[np.repeat(sizes == 1, sizes)] = lone_span
        kinds, n_rows = np.unique(spans), x.n_rows
        if kinds.tolist() == [self._device_span]:
            return spans, x
        entries.rows += (np.searchsorted(kinds, spans) * n_rows).astype(np.int32)
        values = np.concatenate((x.values,) * len(kinds))
        return spans, Activations(values, self.control, np.repeat(kinds, n_rows), self.mode.half_scales)

    def _ffn(self, gate: Matrix, up: Matrix, x: Activations, spans: np.ndarray) -> Activations:
        hidden = self._times(gate, x)
        experts.activate(hidden, self._times(up, x))
        return Activations(hidden, self.control, spans, self.mode.half_scales)

    # ---- helpers

    def _buffer(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return float32 of a shape, values undefined: a chunk's named buffer where it has one."""
        found = None if self.chunk_buffers is None else self.chunk_buffers.take(name, shape)
        return np.empty(shape, np.float32) if found is None else found

    def _activations(self, values: np.ndarray) -> Activations:
        spans = self._spans if values.shape[0] == self._spans.shape[0] else np.full(values.shape[0], self._device_span, np.int32)
        return Activations(values, self.control, spans, self.mode.half_scales)

    def _times(self, matrix: Matrix, x: Activations) -> np.ndarray:
        return matrix.times(x, self.mode.coded, self.control)

    def _heads(self, x: np.ndarray, norm: np.ndarray, n_heads: int, stride: int, positions: np.ndarray) -> np.ndarray:
        out = np.empty((x.shape[0], n_heads, norm.shape[0]), np.float32)
        attention.finish_heads(x, norm, self.eps, self.table, positions, stride, out)
        return out

    # ---- taps

    def _place_entries(self, entries: Entries) -> None:
        """Say that the next values have one row per entry: an expert's row of the window."""
        if self._details is not None and any(point in self.watched for point in ENTRY_POINTS):
            self.place = Place(rows=entries.rows.copy(), parts=np.repeat(entries.experts, np.diff(entries.starts)))

    def _see_codes(self, point: str, layer: int, x: Activations) -> None:
        """Show activations as products with quantised weights take them: `.codes` int8 and `.scales` float32."""
        if self._details is not None and self.mode.coded:
            codes, scales = CODE_POINTS[point]
            if codes in self.watched:
                self._see(codes, layer, x.coded[0])
            if scales in self.watched:
                self._see(scales, layer, x.coded[1])
