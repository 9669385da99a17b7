"""Section 10 as a whole: the model over one session's tokens, every row of a window at once.

`Stranger.run(tokens)` appends tokens to its one session and returns, in order, every (point, layer, values) on the way: the
residual where a block changed it, each block's output, the logits of every row.  Does not know: slots, windows, drafts.
"""

from dataclasses import dataclass, field

import numpy as np

from tests.oracle.config import OracleConfig
from tests.unit.numerics.stranger import attention, experts, gdn, ngrams, streams
from tests.unit.numerics.stranger.arithmetic import F32
from tests.unit.numerics.stranger.functions import sigmoid, silu
from tests.unit.numerics.stranger.rotary import table_row, turned
from tests.unit.numerics.stranger.sums import normed
from tests.unit.numerics.stranger.tensors import Tensors

Point = tuple[str, int, np.ndarray]


@dataclass(slots=True)
class Session:
    """Tokens so far, and per layer what it keeps: arrays that grow by one row per token, or a memory."""

    tokens: list[int] = field(default_factory=list)
    kept: dict = field(default_factory=dict)

    def append(self, key, rows) -> np.ndarray:
        """Add rows to an array over positions and return all of it."""
        self.kept[key] = np.concatenate((self.kept[key], rows)) if key in self.kept else rows
        return self.kept[key]


class Stranger:
    """The model of a file in one rounding mode and K/V format, for one session; `pool`: (layer, expert) that no device computes."""

    def __init__(self, tensors: Tensors, config: OracleConfig, mode: str, kv: str, pool: frozenset[tuple[int, int]] = frozenset()) -> None:
        self.pool = pool
        self.tensors, self.config, self.mode, self.kv = tensors, config, mode, kv
        self.raw_format = "f32" if mode == "wide" else "f16"
        self.eps = F32(config.eps)
        self.session = Session()

    def run(self, tokens: list[int]) -> list[Point]:
        c, first = self.config, len(self.session.tokens)
        positions = range(first, first + len(tokens))
        embedded = self.tensors.look_up("token_embd.weight", tokens)
        residual = np.repeat(embedded[:, None], c.n_streams, axis=1)
        seen = [("embed", -1, residual)]
        for layer in range(c.n_layers):
            if c.ngram is not None and layer in c.ngram.layers:
                residual = self.ngram(layer, residual, tokens)
                seen.append(("ngram", layer, residual))
            mixed, inject = self.read(f"blk.{layer}.hc_attn", residual)
            y = self.qsa(layer, mixed, positions) if c.is_sparse(layer) else self.gdn(layer, mixed)
            residual = streams.written(residual, y, inject)
            seen += [("attention", layer, y), ("residual", layer, residual)]
            mixed, inject = self.read(f"blk.{layer}.hc_ffn", residual)
            y = self.moe(layer, mixed)
            residual = streams.written(residual, y, inject)
            seen += [("moe", layer, y), ("residual", layer, residual)]
        self.session.tokens += tokens
        mixed, _ = self.read("output_hc", residual)
        return [*seen, ("logits", -1, self.times("output.weight", mixed))]

    def times(self, name: str, x, **how) -> np.ndarray:
        return self.tensors.times(name, x, self.mode, **how)

    def read(self, prefix: str, residual) -> tuple[np.ndarray, np.ndarray | None]:
        n_streams = self.config.n_streams
        xn = streams.norm_streams(residual, self.tensors.vector(f"{prefix}_norm.weight"), self.eps)
        low = streams.low_rank(self.times(f"{prefix}_down.weight", xn), n_streams)
        mixed = streams.mixed(xn, self.times(f"{prefix}_up.weight", low), n_streams)
        inject = f"{prefix}_inject.weight"
        return mixed, self.times(inject, xn) if inject in self.tensors else None

    def gdn(self, layer: int, x) -> np.ndarray:
        c, kept, name = self.config, self.session.kept, f"blk.{layer}.{{}}".format
        vector = self.tensors.vector
        u, taps = self.times(name("attn_qkv.weight"), x), vector(name("ssm_conv1d.weight"))
        history = kept.get(("u", layer), np.zeros((taps.shape[1] - 1, u.shape[1]), F32))
        w = gdn.unit_heads(silu(gdn.convolved(u, history, taps)), 2 * c.n_key_heads, c.state_size, self.eps)
        kept["u", layer] = np.concatenate((history, u))[-history.shape[0] :]
        alpha, beta = self.times(name("ssm_alpha.weight"), x), self.times(name("ssm_beta.weight"), x)
        g, strength = gdn.gates(alpha, beta, vector(name("ssm_dt.bias")), vector(name("ssm_a")))
        empty = np.zeros((c.n_value_heads, c.state_size, c.state_size), F32)
        o, kept["memory", layer] = gdn.scanned(w, g, strength, kept.get(("memory", layer), empty), c.n_key_heads)
        z = self.times(name("attn_gate.weight"), x)
        return self.times(name("ssm_out.weight"), gdn.gate_normed(o, z, vector(name("ssm_norm.weight")), self.eps))

    def turns(self, positions) -> np.ndarray:
        """Rotary rows [n, 1, 2, r/2]."""
        return np.stack([table_row(self.config.rope_base, self.config.rope_dims, p) for p in positions])[:, None]

    def qsa(self, layer: int, x, positions) -> np.ndarray:
        c, append, name = self.config, self.session.append, f"blk.{layer}.{{}}".format
        n, turns = len(x), self.turns(positions)
        pairs = self.times(name("attn_q.weight"), x).reshape(n, c.n_query_heads, 2, c.head_size)
        queries = turned(normed(pairs[:, :, 0], self.tensors.vector(name("attn_q_norm.weight")), self.eps), turns)
        k, v = (self.times(name(f"attn_{kind}.weight"), x).reshape(n, c.n_kv_heads, c.head_size) for kind in "kv")
        k = turned(normed(k, self.tensors.vector(name("attn_k_norm.weight")), self.eps), turns)
        keys, values = (append((kind, layer), attention.read_back(self.kv, *attention.stored(self.kv, cells))) for kind, cells in (("k", k), ("v", v)))
        chosen = self.select(layer, x, positions, turns)
        group = c.n_query_heads // c.n_kv_heads
        out = np.stack([
            [attention.attended(queries[row, h], keys[cells, h // group], values[cells, h // group]) for h in range(c.n_query_heads)]
            for row, cells in enumerate(chosen)
        ])  # fmt: skip
        return self.times(name("attn_output.weight"), (out * sigmoid(pairs[:, :, 1])).reshape(n, -1))

    def select(self, layer: int, x, positions, turns) -> list[list[int]]:
        c, name = self.config, f"blk.{layer}.indexer.{{}}".format
        raw = attention.stored(self.raw_format, self.times(name("k_proj.weight"), x))[0]
        cells = attention.read_back(self.raw_format, self.session.append(("raw", layer), raw), None)
        norm, b = self.tensors.vector(name("k_norm.weight")), c.index_block
        blocks = range(0, len(cells) // b * b, b)
        pooled = [attention.pooled(cells[at : at + b], norm, self.turns([at])[0, 0], self.eps) for at in blocks]
        queries = self.times(name("q_proj.weight"), x).reshape(len(x), c.n_index_heads, c.index_size)
        queries = turned(normed(queries, self.tensors.vector(name("q_norm.weight")), self.eps), turns)
        scores = [attention.block_scores(query, np.reshape(pooled, (-1, c.index_size))) for query in queries]
        return [attention.selected(s, p, c.selected_width, b) for s, p in zip(scores, positions, strict=True)]

    def moe(self, layer: int, x) -> np.ndarray:
        name = f"blk.{layer}.ffn_{{}}.weight".format
        ids, weights = experts.routed(self.times(name("gate_inp"), x), self.config.n_experts_used)
        outputs = np.empty((*ids.shape, x.shape[1]), F32)
        for expert in np.unique(ids):
            rows, ranks = np.nonzero(ids == expert)
            span = 256 if self.mode == "grouped" and len(rows) == 1 else 32
            outputs[rows, ranks] = self.ffn(name, "exps", x[rows], span=span, expert=int(expert), in_pool=(layer, int(expert)) in self.pool)
        shared, logit = self.ffn(name, "shexp", x), self.times(name("gate_inp_shexp"), x)[:, 0]
        return experts.combined(outputs, weights, shared, logit)

    def ffn(self, name, suffix: str, x, **how) -> np.ndarray:
        gate, up = (self.times(name(f"{part}_{suffix}"), x, **how) for part in ("gate", "up"))
        return self.times(name(f"down_{suffix}"), experts.activated(gate, up), **how)

    def ngram(self, layer: int, residual, tokens) -> np.ndarray:
        c, kept, name = self.config.ngram, self.session.kept, f"blk.{layer}.ple_{{}}.weight".format
        vector, n = self.tensors.vector, len(tokens)
        rows = ngrams.table_rows(tokens, self.session.tokens, c.end_token, c.multipliers, c.sizes, c.offsets, c.heads_per_ngram)
        e = self.tensors.look_up("per_layer_token_embd.weight", rows.reshape(-1)).reshape(n, -1)
        key, value = self.times(name("key"), e), self.times(name("value"), e)
        gated = ngrams.gated(residual, key, value, vector(name("norm_key")), vector(name("norm_query")), self.eps)
        nr = normed(gated, vector(name("norm_conv")).reshape(residual.shape[1:]), self.eps).reshape(n, -1)
        history = kept.get(("nr", layer), np.zeros(((c.kernel - 1) * c.dilation, nr.shape[1]), F32))
        kept["nr", layer] = np.concatenate((history, nr))[-history.shape[0] :]
        return ngrams.added(residual, gated, gdn.convolved(nr, history, vector(name("conv1d")), c.dilation))
