"""Section 10.7: the draft layer of one session, on top of the stranger's trunk."""

import numpy as np

from tests.unit.numerics.stranger import attention, streams
from tests.unit.numerics.stranger.arithmetic import F32
from tests.unit.numerics.stranger.functions import best_first, exp, sigmoid
from tests.unit.numerics.stranger.model import Stranger
from tests.unit.numerics.stranger.rotary import turned
from tests.unit.numerics.stranger.sums import normed, tree


class StrangerDrafts:
    """Cells and proposals; `trunk` lends its weights, mode and K/V format."""

    def __init__(self, trunk: Stranger) -> None:
        self.trunk, self.layer = trunk, trunk.config.n_layers
        shape = (0, trunk.config.n_kv_heads, trunk.config.head_size)
        self.keys, self.values = np.zeros(shape, F32), np.zeros(shape, F32)
        self.n_own = 0

    def name(self, part: str) -> str:
        return f"blk.{self.layer}.{part}.weight"

    def times(self, part: str, x) -> np.ndarray:
        return self.trunk.times(self.name(part), x)

    def normed(self, x, part: str) -> np.ndarray:
        return normed(x, self.trunk.tensors.vector(self.name(part)), self.trunk.eps)

    def pair(self, residual, tokens) -> np.ndarray:
        """Streams Q of residual rows [n, C, H] and the tokens behind them."""
        hidden = self.normed(residual.reshape(len(tokens), -1), "nextn.hnorm")
        embedded = self.normed(self.trunk.tensors.look_up("token_embd.weight", tokens), "nextn.enorm")
        made = self.times("nextn.fc_hidden", hidden.reshape(-1, residual.shape[2])).reshape(residual.shape)
        return made + self.times("nextn.fc_embedding", embedded)[:, None]

    def place(self, made, positions) -> None:
        """Append the cells of streams made; the last one is the tip."""
        c, shape = self.trunk.config, (len(made), self.trunk.config.n_kv_heads, -1)
        mixed, inject = self.trunk.read(f"blk.{self.layer}.hc_attn", made)
        k = turned(self.normed(self.times("attn_k", mixed).reshape(shape), "attn_k_norm"), self.trunk.turns(positions))
        v = self.times("attn_v", mixed).reshape(*shape[:2], c.head_size)
        stored = [attention.read_back(self.trunk.kv, *attention.stored(self.trunk.kv, cells)) for cells in (k, v)]
        self.keys, self.values = (np.concatenate(pair) for pair in zip((self.keys, self.values), stored, strict=True))
        self.tip = made[-1:], mixed[-1:], inject[-1:], positions[-1]

    def build(self, residual, tokens, first: int) -> None:
        """Cells of accepted rows at positions first, first + 1, ...; chain cells are forgotten."""
        self.keys, self.values = self.keys[: self.n_own], self.values[: self.n_own]
        self.place(self.pair(residual, tokens), range(first, first + len(tokens)))
        self.n_own += len(tokens)

    def chain(self, token: int) -> None:
        """The cell behind the tip, from the layer's own streams and its draft."""
        self.place(self.pair(self.tip[0], [token]), [self.tip[3] + 1])

    def propose(self) -> tuple[int, np.ndarray, np.ndarray]:
        """Index within the draft ids, its probability, all logits."""
        made, mixed, inject, position = self.tip
        made = streams.written(made, self.attend(mixed, position), inject)
        x, inject = self.trunk.read(f"blk.{self.layer}.hc_ffn", made)
        made = streams.written(made, self.trunk.moe(self.layer, x), inject)
        self.tip = made, mixed, inject, position
        mixed, _ = self.trunk.read(f"blk.{self.layer}.nextn.hc", made)
        logits = self.trunk.times("output.weight", mixed)[0, list(self.trunk.config.draft_ids)]
        best = best_first(logits)[0]
        lanes = np.zeros(256, F32)
        for i, e in enumerate(exp(logits - logits[best])):
            lanes[i % 256] = lanes[i % 256] + e
        return int(best), F32(1) / tree(lanes), logits

    def attend(self, mixed, position: int) -> np.ndarray:
        c = self.trunk.config
        pairs = self.times("attn_q", mixed).reshape(1, c.n_query_heads, 2, c.head_size)
        queries = turned(self.normed(pairs[:, :, 0], "attn_q_norm"), self.trunk.turns([position]))[0]
        group = c.n_query_heads // c.n_kv_heads
        out = [attention.attended(q, self.keys[:, h // group], self.values[:, h // group]) for h, q in enumerate(queries)]
        return self.times("attn_output", (np.stack(out) * sigmoid(pairs[0, :, 1])).reshape(1, -1))
