"""The sessions' state of one stage on a card, all slots in one allocation per kind of state.

The gated delta nets of all layers lie together, [layers, slots, ...], so that one launch replays them all.  Cells, raw and
pooled keys are indexed by position, as on the host: a rejected row's cells are written again.  Flat arrays throughout.
Does not know: operations.
"""

import numpy as np

from strata.cuda.attention.cells import CELL_FORMATS
from strata.cuda.attention.heads import AttentionCells
from strata.cuda.card.device import CudaDevice
from strata.model.config import ModelConfig

CELL_TYPES = {"f32": np.float32, "f16": np.uint16, "int8": np.int8}
NOT_A_NUMBER = {np.dtype(np.float32): np.nan, np.dtype(np.uint16): 0x7E00, np.dtype(np.int8): 127}
"""What poisons a cell: NaN, its half-precision bits, or the largest code."""
LEAST = 1
"""Entries of an array that a format does not use: kernels get an array all the same."""


class Sessions:
    """State of the given layers for n_slots sessions of `context` positions."""

    def __init__(self, device: CudaDevice, config: ModelConfig, layers: tuple[int, ...], purpose: str, kv: str, n_slots: int, context: int) -> None:
        self.device, self.config, self.n_slots, self.context = device, config, n_slots, context
        self.gdn_layers = tuple(layer for layer in layers if not config.is_qsa(layer))
        c = config
        self._memory_values = c.n_ssm_v_heads * c.ssm_state**2
        self._tail_values = (c.conv_taps - 1) * c.ssm_channels
        n_gdn = max(1, len(self.gdn_layers))
        self.memory = device.zeros(purpose, n_gdn * n_slots * self._memory_values, np.float32)
        self.tail = device.zeros(purpose, n_gdn * n_slots * self._tail_values, np.float32)
        self.cells = {layer: self._cells(purpose, kv) for layer in layers if c.is_qsa(layer)}
        self._ngram_values = c.ple_history * c.residual_width
        has_ngrams = any(c.is_ple(layer) for layer in layers)
        self.ngram_tail = device.zeros(purpose, n_slots * self._ngram_values, np.float32) if has_ngrams else None
        self.history = device.upload(purpose, np.full(2 * n_slots, -1, np.int32)) if has_ngrams else None

    def _cells(self, purpose: str, kv: str) -> AttentionCells:
        c, device = self.config, self.device
        form = CELL_FORMATS[kv]
        vectors = self.n_slots * self.context * c.n_kv_heads
        n_scales = max(LEAST, vectors * (c.head_dim // form.values_per_scale if form.values_per_scale else 0))
        n_blocks = self.context // c.indexer_block + 1
        codes = [device.zeros(purpose, vectors * c.head_dim, CELL_TYPES[kv]) for _ in range(2)]
        scales = [device.zeros(purpose, n_scales, np.uint16) for _ in range(2)]
        raw = device.zeros(purpose, self.n_slots * self.context * c.indexer_dim, np.uint16)
        pooled = device.zeros(purpose, self.n_slots * n_blocks * c.indexer_dim, np.float32)
        return AttentionCells(self.context, n_blocks, codes[0], scales[0], codes[1], scales[1], raw, pooled)

    def memory_of(self, layer: int):
        """memory [slots, v_heads, S, S] of a layer, flat."""
        return self._of_layer(self.memory, layer, self._memory_values)

    def tail_of(self, layer: int):
        """tail [slots, taps - 1, channels] of a layer, flat."""
        return self._of_layer(self.tail, layer, self._tail_values)

    def _of_layer(self, array, layer: int, n_values: int):
        each = self.n_slots * n_values
        at = self.gdn_layers.index(layer) * each
        return array[at : at + each]

    def recurrent(self, slot: int):
        """Yield the parts of a slot's recurrent state, and the value that a new session has there."""
        for number in range(len(self.gdn_layers)):
            for array, n in ((self.memory, self._memory_values), (self.tail, self._tail_values)):
                at = (number * self.n_slots + slot) * n
                yield array[at : at + n], 0
        if self.history is not None:
            yield self.ngram_tail[slot * self._ngram_values : (slot + 1) * self._ngram_values], 0
            yield self.history[2 * slot : 2 * slot + 2], -1

    def positional(self, slot: int):
        """Yield the parts of a slot's cells."""
        for cells in self.cells.values():
            for array in (cells.k_codes, cells.k_scales, cells.v_codes, cells.v_scales, cells.raw, cells.pooled):
                n = array.size // self.n_slots
                yield array[slot * n : (slot + 1) * n]

    def clear(self, slot: int) -> None:
        """Make a slot's recurrent state new."""
        for part, value in self.recurrent(slot):
            part.copy_to_device(np.full(part.size, value, part.dtype), stream=self.device.stream)
        self.device.synchronise()

    def poison(self, slot: int, from_position: int) -> None:
        """Fill a slot's cells from a position on with NaN; blocks from the one that holds the position on."""
        c = self.config
        for cells in self.cells.values():
            by_cell = (cells.k_codes, cells.k_scales, cells.v_codes, cells.v_scales, cells.raw)
            parts = [(array, cells.n_cells, from_position) for array in by_cell if array.size > LEAST]
            for array, n_places, first in (*parts, (cells.pooled, cells.n_blocks, from_position // c.indexer_block)):
                each = array.size // (self.n_slots * n_places)
                part = array[(slot * n_places + first) * each : (slot + 1) * n_places * each]
                part.copy_to_device(np.full(part.size, NOT_A_NUMBER[array.dtype], array.dtype), stream=self.device.stream)
        self.device.synchronise()

    def copy_slot(self, source: int, target: int) -> None:
        """Copy everything of one slot to another."""
        pairs = [(a, b) for (a, _), (b, _) in zip(self.recurrent(source), self.recurrent(target), strict=True)]
        pairs += zip(self.positional(source), self.positional(target), strict=True)
        for a, b in pairs:
            b.copy_to_device(a, stream=self.device.stream)
        self.device.synchronise()
