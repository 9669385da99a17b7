"""The trunk, token by token or window by window, in float64.

`OracleModel` holds keys and tensors, `OracleSession` one conversation.  A window of rows gives what single tokens give
up to the last bits of float64 (matrix products may add in another order); nothing else depends on the window.
Does not know: the draft layer (see `drafts`), sampling beyond the largest logit.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tests.oracle import blocks
from tests.oracle import operations as ops
from tests.oracle.config import read_config
from tests.oracle.recorder import Recorder


class OracleModel:
    """Keys (without the architecture's prefix) and tensors by name, [out, in], float32 or float64.

    Dense weights are widened to float64 once; experts and tables stay as given and are widened on use.
    """

    def __init__(self, keys: Mapping, tensors: Mapping[str, np.ndarray]) -> None:
        self.config = read_config(keys)
        self.tensors = tensors
        self._widened: dict[str, np.ndarray] = {}

    def weight(self, name: str) -> np.ndarray:
        """Return a dense tensor in float64."""
        if name not in self._widened:
            self._widened[name] = ops.widened(self.tensors[name])
        return self._widened[name]

    def layer(self, layer: int) -> Callable[[str], np.ndarray]:
        """Return the lookup of a layer's dense tensors by their name after `blk.N.`."""
        return lambda name: self.weight(f"blk.{layer}.{name}")

    def expert(self, layer: int, expert: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Gate, up [F, H] and down [H, F] of one expert."""
        gate, up, down = (self.tensors[f"blk.{layer}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
        return gate[expert], up[expert], down[expert]

    def embedding(self, tokens) -> np.ndarray:
        """Rows of `token_embd`: tokens [rows] -> [rows, H]."""
        return ops.widened(self.tensors["token_embd.weight"][np.asarray(tokens)])


class OracleSession:
    """One conversation: feed tokens in order, get logits.

    `residuals` holds the final residual [rows, C, H] of the last window (after the last layer, before the top mixer);
    a `recorder` receives the values listed in its module.
    """

    def __init__(self, model: OracleModel, recorder: Recorder | None = None) -> None:
        config = model.config
        self.model = model
        self.recorder = recorder or Recorder(names=())
        self.position = 0
        self.residuals = np.zeros((0, config.n_streams, config.width))
        self._states: list = [
            blocks.empty_cells(config) if config.is_sparse(layer) else blocks.empty_gdn(config)
            for layer in range(config.n_layers)
        ]
        self._ngram = {layer: blocks.empty_ngram(config) for layer in (config.ngram.layers if config.ngram else ())}

    def fork(self) -> "OracleSession":
        """Return an independent session at the same position, without recorder."""
        other = OracleSession(self.model)
        other.position, other.residuals = self.position, self.residuals
        other._states, other._ngram = list(self._states), dict(self._ngram)
        return other

    def state(self, layer: int) -> blocks.GdnState | blocks.CellState:
        """Return the state of a layer's delta network or attention after the last window."""
        return self._states[layer]

    def ngram_state(self, layer: int) -> blocks.NgramState:
        """Return the n-gram state of a layer after the last window."""
        return self._ngram[layer]

    def step(self, token: int) -> np.ndarray:
        """Feed one token -> logits [V]."""
        return self.advance([token])[0]

    def advance(self, tokens: Sequence[int]) -> np.ndarray:
        """Feed a window of tokens -> logits [rows, V]."""
        tokens = np.asarray(tokens, dtype=np.int64)
        embedded = self.model.embedding(tokens)
        residual = np.repeat(embedded[:, None, :], self.model.config.n_streams, axis=1)
        for layer in range(self.model.config.n_layers):
            residual = self._layer(layer, residual, tokens)
            self.recorder.note("residual", layer, residual)
        mixed, _ = blocks.read_streams(self.model, "output_hc", residual)
        self.recorder.note("head_mixed", None, mixed)
        self.residuals = residual
        self.position += len(tokens)
        return ops.head_logits(mixed, self.model.weight("output.weight"))

    def greedy(self, logits: np.ndarray, count: int) -> list[int]:
        """Feed the largest logit back `count` times, from the logits [V] of the last token -> the tokens fed."""
        picked = []
        for _ in range(count):
            picked.append(int(ops.greedy_pick(logits)))
            logits = self.step(picked[-1])
        return picked

    def _layer(self, layer: int, residual: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        if layer in self._ngram:
            residual, self._ngram[layer] = blocks.ngram_rows(
                self.model, layer, residual, tokens, self._ngram[layer]
            )
            self.recorder.note("ngram_residual", layer, residual)
        residual = self._block(layer, "attn", residual, self._mix_tokens)
        return self._block(layer, "ffn", residual, self._mix_channels)

    def _block(self, layer: int, kind: str, residual: np.ndarray, compute: Callable) -> np.ndarray:
        mixed, injected = blocks.read_streams(self.model, f"blk.{layer}.hc_{kind}", residual)
        output = compute(layer, mixed)
        for name, rows in (("mixed", mixed), ("inject", injected), ("output", output)):
            self.recorder.note(f"{kind}_{name}", layer, rows)
        return ops.stream_write(residual, output, injected)

    def _mix_tokens(self, layer: int, x: np.ndarray) -> np.ndarray:
        state = self._states[layer]
        if self.model.config.is_sparse(layer):
            output, self._states[layer] = blocks.sparse_rows(self.model, layer, x, state, self.recorder)
        else:
            output, self._states[layer] = blocks.gdn_rows(self.model, layer, x, state)
        return output

    def _mix_channels(self, layer: int, x: np.ndarray) -> np.ndarray:
        return blocks.moe_rows(self.model, layer, x, self.recorder)
