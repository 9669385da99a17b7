"""The draft layer: dense attention over its own cells, own experts, the trunk's embedding and head.

Cell i pairs the trunk's final residual at i with the token at i+1, turns by position i and predicts the token at i+2.
Contract: `extend` with every accepted position once, in order; `propose` never changes the cells.
Does not know: whether drafts are accepted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.oracle import blocks
from tests.oracle import operations as ops
from tests.oracle.model import OracleModel
from tests.oracle.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Proposal:
    """One draft: its token and probability among the draft ids; all logits [V] and the cell's own Q [C, H]."""

    token: int
    probability: float
    logits: np.ndarray
    streams: np.ndarray


class OracleDrafts:
    """The draft layer's cells of one conversation."""

    def __init__(self, model: OracleModel) -> None:
        config = model.config
        self.model = model
        self.layer = config.n_layers
        self.keys = np.zeros((0, config.n_kv_heads, config.head_size))
        self.values = np.zeros((0, config.n_kv_heads, config.head_size))
        self._last: np.ndarray | None = None

    def extend(self, residuals: np.ndarray, next_tokens: Sequence[int]) -> None:
        """Add cells: the trunk's final residuals [rows, C, H], and the token that follows each position [rows]."""
        streams = self.pair(residuals, next_tokens)
        positions = len(self.keys) + np.arange(len(streams))
        mixed, _ = self._read("hc_attn", streams)
        _, _, key, value = blocks.project_heads(self.model, self.layer, mixed, positions)
        self.keys, self.values = np.concatenate((self.keys, key)), np.concatenate((self.values, value))
        self._last = streams[-1]

    def propose(self, count: int) -> list[Proposal]:
        """Chain `count` drafts from the newest cell on."""
        if self._last is None:
            raise ValueError(f"count={count}: the draft layer has no cell yet; call extend first")
        streams, keys, values, proposals = self._last, self.keys[:-1], self.values[:-1], []
        for _ in range(count):
            streams, keys, values = self._cell(streams, keys, values)
            mixed, _ = self._read("nextn.hc", streams[None])
            logits = ops.head_logits(mixed, self.model.weight("output.weight"))[0]
            token, probability = ops.draft_pick(logits, self.model.config.draft_ids)
            proposals.append(Proposal(token, probability, logits, streams))
            streams = self.pair(streams[None], [token])[0]
        return proposals

    def pair(self, residuals: np.ndarray, next_tokens: Sequence[int]) -> np.ndarray:
        """Combine residuals [rows, C, H] with the tokens after them [rows] into the layer's streams Q [rows, C, H]."""
        w, eps = self.model.layer(self.layer), self.model.config.eps
        residuals = ops.widened(residuals)
        flat = ops.rms(residuals.reshape(len(residuals), -1), eps) * w("nextn.hnorm.weight")
        embedded = ops.rms(self.model.embedding(next_tokens), eps) * w("nextn.enorm.weight")
        hidden = ops.linear(flat.reshape(residuals.shape), w("nextn.fc_hidden.weight"))
        return hidden + ops.linear(embedded, w("nextn.fc_embedding.weight"))[:, None, :]

    def _read(self, mixer: str, streams: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return blocks.read_streams(self.model, f"blk.{self.layer}.{mixer}", streams)

    def _cell(
        self, streams: np.ndarray, keys: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Run the cell after `keys`: Q [C, H] -> Q after both writes, keys and values with this cell."""
        position = len(keys)
        residual = streams[None]
        mixed, injected = self._read("hc_attn", residual)
        query, gate, key, value = blocks.project_heads(self.model, self.layer, mixed, np.array([position]))
        keys, values = np.concatenate((keys, key)), np.concatenate((values, value))
        attended = ops.attend(query[0], keys, values, np.arange(position + 1))
        output = ops.linear(ops.gate_heads(attended[None], gate), self.model.layer(self.layer)("attn_output.weight"))
        residual = ops.stream_write(residual, output, injected)
        mixed, injected = self._read("hc_ffn", residual)
        output = blocks.moe_rows(self.model, self.layer, mixed, Recorder(names=()))
        return ops.stream_write(residual, output, injected)[0], keys, values
