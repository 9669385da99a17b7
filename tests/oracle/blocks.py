"""The blocks of a layer over a window of rows: mixer, delta network, sparse attention, experts, n-gram table.

Contract: each takes the model, the layer, its input rows and the state before, and returns the output rows and the
state after; states are frozen and never modified, so that keeping an old one is a snapshot.  Rows are consecutive
positions.  Does not know: the order of blocks, tokens' origin.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tests.oracle import operations as ops
from tests.oracle.config import OracleConfig
from tests.oracle.recorder import Recorder

if TYPE_CHECKING:
    from tests.oracle.model import OracleModel


@dataclass(frozen=True, slots=True)
class GdnState:
    """history [kernel-1, channels] of u, memory [Gv, S, S]."""

    history: np.ndarray
    memory: np.ndarray


@dataclass(frozen=True, slots=True)
class CellState:
    """keys, values [cells, Nkv, D]; raw_keys [cells, Di] and pooled [blocks, Di] of the indexer."""

    keys: np.ndarray
    values: np.ndarray
    raw_keys: np.ndarray
    pooled: np.ndarray


@dataclass(frozen=True, slots=True)
class NgramState:
    """The last tokens (most recent last) and history [(kernel-1)*dilation, C*H] of nr."""

    tokens: tuple[int, ...]
    history: np.ndarray


def empty_gdn(config: OracleConfig) -> GdnState:
    """State of a delta network before position 0."""
    size = config.state_size
    channels = (2 * config.n_key_heads + config.n_value_heads) * size
    return GdnState(np.zeros((config.conv_kernel - 1, channels)), np.zeros((config.n_value_heads, size, size)))


def empty_cells(config: OracleConfig) -> CellState:
    """State of an attention layer before position 0."""
    heads = np.zeros((0, config.n_kv_heads, config.head_size))
    return CellState(heads, heads, np.zeros((0, config.index_size)), np.zeros((0, config.index_size)))


def empty_ngram(config: OracleConfig) -> NgramState:
    """State of an n-gram layer before position 0."""
    rows = (config.ngram.kernel - 1) * config.ngram.dilation
    return NgramState((), np.zeros((rows, config.n_streams * config.width)))


def read_streams(model: "OracleModel", prefix: str, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Read the residual with the mixer called `prefix` -> mixed [rows, H], inject [rows, C] or None."""
    norm, down, up = (model.weight(f"{prefix}_{part}.weight") for part in ("norm", "down", "up"))
    inject = model.weight(f"{prefix}_inject.weight") if f"{prefix}_inject.weight" in model.tensors else None
    return ops.stream_read(residual, norm, down, up, inject, model.config.eps)


def gdn_rows(model: "OracleModel", layer: int, x: np.ndarray, state: GdnState) -> tuple[np.ndarray, GdnState]:
    """Gated delta network: x [rows, H] -> y [rows, H]."""
    config, w = model.config, model.layer(layer)
    mixed, history = ops.gdn_conv(ops.linear(x, w("attn_qkv.weight")), state.history, w("ssm_conv1d.weight"))
    query, key, value = ops.gdn_split(mixed, config.n_key_heads, config.n_value_heads, config.state_size)
    alpha, beta = ops.linear(x, w("ssm_alpha.weight")), ops.linear(x, w("ssm_beta.weight"))
    decay, beta = ops.gdn_gates(alpha, beta, w("ssm_dt.bias"), w("ssm_a"))
    query, key = ops.gdn_qk_norm(query, config.eps), ops.gdn_qk_norm(key, config.eps)
    outputs, memory = ops.gdn_scan(query, key, value, decay, beta, state.memory)
    gated = ops.gdn_gate_norm(outputs, ops.linear(x, w("attn_gate.weight")), w("ssm_norm.weight"), config.eps)
    return ops.linear(gated, w("ssm_out.weight")), GdnState(history, memory)


def project_heads(model: "OracleModel", layer: int, x: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, ...]:
    """Query, output gate [rows, Nq, D], key, value [rows, Nkv, D] of an attention layer."""
    config, w = model.config, model.layer(layer)
    turn = (positions, config.rope_base, config.rope_dims, config.eps)
    query, gate = ops.split_query_gate(ops.linear(x, w("attn_q.weight")), config.n_query_heads)
    shape = (len(x), config.n_kv_heads, config.head_size)
    key = ops.normed_heads(ops.linear(x, w("attn_k.weight")).reshape(shape), w("attn_k_norm.weight"), *turn)
    value = ops.linear(x, w("attn_v.weight")).reshape(shape)
    return ops.normed_heads(query, w("attn_q_norm.weight"), *turn), gate, key, value


def add_index_cells(model: "OracleModel", layer: int, x: np.ndarray, state: CellState) -> CellState:
    """Append the raw indexer keys of new rows, and the pooled keys of blocks that they complete."""
    config, w = model.config, model.layer(layer)
    raw_keys = np.concatenate((state.raw_keys, ops.linear(x, w("indexer.k_proj.weight"))))
    done = len(state.pooled)
    fresh = ops.pooled_keys(
        raw_keys[done * config.index_block :], w("indexer.k_norm.weight"), config.index_block,
        config.rope_base, config.rope_dims, config.eps, first_block=done,
    )  # fmt: skip
    return replace(state, raw_keys=raw_keys, pooled=np.concatenate((state.pooled, fresh)))


def scored_blocks(model: "OracleModel", layer: int, queries: np.ndarray, position: int, state: CellState) -> np.ndarray:
    """Scores of the complete blocks at `position`, then the dead key's (with the tail's bonus); queries [Ni, Di]."""
    config = model.config
    n_blocks, tail = divmod(position + 1, config.index_block)
    norm = model.layer(layer)("indexer.k_norm.weight")
    dead = ops.dead_key(
        state.raw_keys[0], norm, config.index_block, config.rope_base, config.rope_dims, config.eps
    )
    scores = ops.block_scores(queries, np.concatenate((state.pooled[:n_blocks], dead[None])))
    scores[-1] += ops.TAIL_BONUS if tail else 0.0
    return scores


def sparse_rows(
    model: "OracleModel", layer: int, x: np.ndarray, state: CellState, recorder: Recorder
) -> tuple[np.ndarray, CellState]:
    """Sparse attention: x [rows, H] -> y [rows, H]."""
    config, w = model.config, model.layer(layer)
    positions = len(state.keys) + np.arange(len(x))
    query, gate, key, value = project_heads(model, layer, x, positions)
    state = replace(state, keys=np.concatenate((state.keys, key)), values=np.concatenate((state.values, value)))
    state = add_index_cells(model, layer, x, state)
    index_query = ops.linear(x, w("indexer.q_proj.weight")).reshape(len(x), config.n_index_heads, config.index_size)
    index_query = ops.normed_heads(
        index_query, w("indexer.q_norm.weight"), positions, config.rope_base, config.rope_dims, config.eps
    )
    attended = np.empty_like(query)
    for row, position in enumerate(positions):
        scores = scored_blocks(model, layer, index_query[row], position, state)
        cells = ops.select_cells(scores, position, config.selected_width, config.index_block)
        attended[row] = ops.attend(query[row], state.keys, state.values, cells)
        recorder.note("block_scores", layer, [scores])
        recorder.note("cells", layer, [cells])
    return ops.linear(ops.gate_heads(attended, gate), w("attn_output.weight")), state


def moe_rows(model: "OracleModel", layer: int, x: np.ndarray, recorder: Recorder) -> np.ndarray:
    """Mixture of experts: x [rows, H] -> y [rows, H]."""
    w = model.layer(layer)
    logits = ops.linear(x, w("ffn_gate_inp.weight"))
    ids, weights = ops.router(logits, model.config.n_experts_used)
    outputs = np.empty((*ids.shape, x.shape[1]))
    for expert in np.unique(ids):
        rows, ranks = np.nonzero(ids == expert)
        outputs[rows, ranks] = ops.expert_ffn(x[rows], *model.expert(layer, expert))
    shared = ops.expert_ffn(x, *(w(f"ffn_{part}_shexp.weight") for part in ("gate", "up", "down")))
    for name, rows in (("router_logits", logits), ("router_ids", ids), ("router_weights", weights)):
        recorder.note(name, layer, rows)
    return ops.moe_combine(outputs, weights, shared, ops.linear(x, w("ffn_gate_inp_shexp.weight")))


def ngram_rows(
    model: "OracleModel", layer: int, residual: np.ndarray, tokens: np.ndarray, state: NgramState
) -> tuple[np.ndarray, NgramState]:
    """N-gram table: residual [rows, C, H] as it enters the layer -> residual."""
    ngram, w = model.config.ngram, model.layer(layer)
    rows = ops.ple_hash_rows(
        tokens, state.tokens, ngram.multipliers, ngram.sizes, ngram.offsets, ngram.heads_per_ngram, ngram.end_token
    )
    embedding = ops.ple_embedding(model.tensors["per_layer_token_embd.weight"], rows)
    names = ("key", "value", "norm_key", "norm_query", "norm_conv", "conv1d")
    weights = (w(f"ple_{name}.weight") for name in names)
    residual, history = ops.ple_block(residual, embedding, *weights, state.history, ngram.dilation, model.config.eps)
    kept = (*state.tokens, *(int(token) for token in tokens))[-(len(ngram.multipliers) - 1) :]
    return residual, NgramState(kept, history)
