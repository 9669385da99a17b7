"""Plausible misreadings of the model's description, one per line: what to replace, and by which wrong function.

Each entry is (what is wrong, attribute below `tests.oracle`, wrong function).  Used to prove that the reference check
notices them.  Names imported here stay the right functions while an attribute elsewhere is replaced.
Does not know: how large the damage is; the indexer (see `wrong_selection`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.oracle.attention import attend
from tests.oracle.elementary import linear, rms, rope, sigmoid, silu, softmax, widened
from tests.oracle.experts import expert_ffn, moe_combine, router
from tests.oracle.gdn import gdn_conv, gdn_gates, gdn_scan
from tests.oracle.ngram import context_tokens, ple_conv, ple_hash_rows
from tests.oracle.streams import stream_write


READ, WRITE = "operations.stream_read", "operations.stream_write"
CONV, SCAN, GATES = "operations.gdn_conv", "operations.gdn_scan", "operations.gdn_gates"
SPLIT, HEADS, COMBINE = "operations.split_query_gate", "operations.normed_heads", "operations.moe_combine"


@dataclass(frozen=True, slots=True)
class WrongStep:
    """`target` below `tests.oracle` is replaced by `replacement`; `what` says what is wrong with it."""

    what: str
    target: str
    replacement: Callable


def read_with(residual, norm, down, up, inject, eps, *, squeeze=None, one_norm=False, raw_inject=False, factor=1.0):
    """`stream_read` with one step exchanged."""
    residual = widened(residual)
    rows, n_streams, width = residual.shape
    normed = rms(residual.reshape(rows, -1), eps) if one_norm else rms(residual, eps).reshape(rows, -1)
    flat = normed * widened(norm).reshape(-1)
    low = (squeeze or (lambda x: silu(x / n_streams)))(linear(flat, down))
    mixed = (flat * sigmoid(linear(low, up))).reshape(residual.shape).mean(axis=1)
    source = residual.reshape(rows, -1) if raw_inject else flat
    return factor * mixed, None if inject is None else linear(source, inject)


def scan_with(query, key, value, decay, beta, state, *, old_read=False, undecayed=False, transposed=False, scaled=True):
    """`gdn_scan` with one step exchanged."""
    state = widened(state)
    outputs = np.empty(value.shape)
    partner = np.arange(value.shape[1]) % key.shape[1]
    for row in range(len(value)):
        q, k, g = query[row, partner], key[row, partner], decay[row][:, None]
        recalled = np.einsum("hk,hkv->hv", k, state)
        delta = beta[row][:, None] * (value[row] - (recalled if undecayed else g * recalled))
        before, state = state, g[:, :, None] * state + k[:, :, None] * delta[:, None, :]
        pattern = "hv,hkv->hk" if transposed else "hk,hkv->hv"
        outputs[row] = np.einsum(pattern, q, before if old_read else state)
        outputs[row] /= np.sqrt(value.shape[2]) if scaled else 1.0
    return outputs, state


def conv_without_history(inputs, history, taps):
    """`gdn_conv` where every row sees zeros before it."""
    return np.concatenate([gdn_conv(row[None], history * 0, taps)[0] for row in inputs]), history


def scan_with_adjacent_partners(query, key, value, decay, beta, state):
    """`gdn_scan` where value head h meets key head h // (Gv/Gq)."""
    repeat = value.shape[1] // key.shape[1]
    return gdn_scan(np.repeat(query, repeat, axis=1), np.repeat(key, repeat, axis=1), value, decay, beta, state)


def adjacent_rope(x, positions, base, dims):
    """`rope` that pairs 2i with 2i + 1."""
    order = np.concatenate((np.arange(0, dims, 2), np.arange(1, dims, 2), np.arange(dims, x.shape[-1])))
    return rope(x[..., order], positions, base, dims)[..., np.argsort(order)]


def attend_other_partner(query, keys, values, cells):
    """`attend` where query head n meets key head n mod Nkv."""
    n_kv = keys.shape[1]
    order = np.argsort(np.arange(len(query)) % n_kv, kind="stable")
    return attend(query[order], keys, values, cells)[np.argsort(order)]


def gate_with(outputs, gate, norm, eps, *, activation=sigmoid, offset=0.0):
    """`gdn_gate_norm` with another activation or norm weight."""
    return (rms(outputs, eps) * (norm + offset) * activation(gate).reshape(outputs.shape)).reshape(len(outputs), -1)


def gate_heads_with_silu(attended, gate):
    """`gate_heads` with silu for sigmoid."""
    return (attended * silu(gate)).reshape(len(attended), -1)


def split_in_blocks(x, n_heads):
    """`split_query_gate` where all queries come before all gates."""
    pairs = x.reshape(len(x), 2, n_heads, -1)
    return pairs[:, 0], pairs[:, 1]


def split_swapped(x, n_heads):
    """`split_query_gate` where the gate comes first."""
    pairs = x.reshape(len(x), n_heads, 2, -1)
    return pairs[:, :, 1], pairs[:, :, 0]


def activate_after_product(x, gate, up, down):
    """`expert_ffn` with silu around the product."""
    return linear(silu(linear(x, gate) * linear(x, up)), down)


def router_with(logits, k, *, lowest=False, all_sum=False, shift=0):
    """`router` that picks the smallest, keeps the full softmax's weights, or skips the first ranks."""
    ids, weights = router(-logits if lowest else logits, k + shift)
    ids = ids[:, shift:]
    chosen = np.take_along_axis(softmax(logits), ids, axis=-1)
    return ids, chosen if all_sum else chosen / chosen.sum(axis=-1, keepdims=True)


def ple_gate_with(residual, key, value, norm_key, norm_query, eps, *, activation):
    """`ple_gate` with another activation of the score."""
    keys = rms(key.reshape(residual.shape), eps) * norm_key.reshape(residual.shape[1:])
    queries = rms(residual, eps) * norm_query.reshape(residual.shape[1:])
    score = np.sum(keys * queries, axis=-1) / np.sqrt(residual.shape[2])
    return value[:, None, :] * activation(score)[:, :, None]


def uncut_context(current, previous, ngram, end_token):
    """`context_tokens` that repeats the current token where there is none before it."""
    return [int(current), *(int(previous[-d]) if d <= len(previous) else int(current) for d in range(1, ngram))]


def unsigned_gate(score):
    """The n-gram score's activation without its sign."""
    return sigmoid(np.sqrt(np.abs(score)))


STREAMS = [
    WrongStep("reads with one norm over all streams", READ, lambda *a: read_with(*a, one_norm=True)),
    WrongStep("divides by the streams after silu", READ, lambda *a: read_with(*a, squeeze=lambda x: silu(x) / 4)),
    WrongStep("does not divide the low-rank product", READ, lambda *a: read_with(*a, squeeze=silu)),
    WrongStep("injects from the residual without its norm", READ, lambda *a: read_with(*a, raw_inject=True)),
    WrongStep("adds streams instead of averaging", READ, lambda *a: read_with(*a, factor=4.0)),
    WrongStep("writes without the factor 2", WRITE, lambda r, y, i: stream_write(r, widened(y) / 2, i)),
    WrongStep("does not divide inject by the streams", WRITE, lambda r, y, i: stream_write(r, y, i * 4)),
]  # fmt: skip

DELTA_NETWORK = [
    WrongStep("reverses the convolution taps", CONV, lambda u, h, t: gdn_conv(u, h, t[:, ::-1])),
    WrongStep("forgets silu after the convolution", CONV, lambda u, h, t: ple_conv(u, h, t, 1)),
    WrongStep("keeps no convolution history", CONV, conv_without_history),
    WrongStep("norms q and k by the mean", "operations.gdn_qk_norm", rms),
    WrongStep("does not norm q and k", "operations.gdn_qk_norm", lambda x, eps: x),
    WrongStep("reads the state before its update", SCAN, lambda *a: scan_with(*a, old_read=True)),
    WrongStep("subtracts the recalled value without decay", SCAN, lambda *a: scan_with(*a, undecayed=True)),
    WrongStep("reads the transposed state", SCAN, lambda *a: scan_with(*a, transposed=True)),
    WrongStep("does not divide by the root of the state size", SCAN, lambda *a: scan_with(*a, scaled=False)),
    WrongStep("pairs value heads with adjacent key heads", SCAN, scan_with_adjacent_partners),
    WrongStep("forgets the time step's bias", GATES, lambda a, b, d, s: gdn_gates(a, b, d * 0, s)),
    WrongStep("swaps alpha and beta", GATES, lambda a, b, d, s: gdn_gates(b, a, d, s)),
    WrongStep("takes ssm_a for a logarithm", GATES, lambda a, b, d, s: gdn_gates(a, b, d, -np.exp(s))),
    WrongStep("takes relu for softplus", "gdn.softplus", lambda x: np.maximum(x, 0)),
    WrongStep("gates the output with silu", "operations.gdn_gate_norm", lambda *a: gate_with(*a, activation=silu)),
    WrongStep("takes 1 + w as norm weight", "operations.gdn_gate_norm", lambda *a: gate_with(*a, offset=1.0)),
]  # fmt: skip

ATTENTION = [
    WrongStep("takes the output gate before the query", SPLIT, split_swapped),
    WrongStep("cuts all queries before all gates", SPLIT, split_in_blocks),
    WrongStep("turns adjacent pairs", "attention.rope", adjacent_rope),
    WrongStep("turns keys and queries by half the position", "attention.rope", lambda x, p, b, d: rope(x, p / 2, b, d)),
    WrongStep("turns all dimensions", "attention.rope", lambda x, p, b, d: rope(x, p, b, x.shape[-1])),
    WrongStep("norms heads after turning them", HEADS, lambda x, n, p, b, d, eps: rms(rope(x, p, b, d), eps) * n),
    WrongStep("alternates key heads over query heads", "operations.attend", attend_other_partner),
    WrongStep("does not scale attention scores", "operations.attend", lambda q, k, v, c: attend(q * 8, k, v, c)),
    WrongStep("forgets the newest cell", "operations.attend", lambda q, k, v, c: attend(q, k, v, c[: len(c) - 1 or 1])),
    WrongStep("gates attention with silu", "operations.gate_heads", gate_heads_with_silu),
]  # fmt: skip

EXPERTS = [
    WrongStep("swaps gate and up", "operations.expert_ffn", lambda x, g, u, d: expert_ffn(x, u, g, d)),
    WrongStep("activates after the product", "operations.expert_ffn", activate_after_product),
    WrongStep("picks the smallest", "operations.router", lambda x, k: router_with(x, k, lowest=True)),
    WrongStep("does not renormalise the weights", "operations.router", lambda x, k: router_with(x, k, all_sum=True)),
    WrongStep("skips the best expert", "operations.router", lambda x, k: router_with(x, k, shift=1)),
    WrongStep("does not gate the shared expert", COMBINE, lambda o, w, s, g: moe_combine(o, w, s, g * 0 + 1e3)),
    WrongStep("reverses the weights of ranks", COMBINE, lambda o, w, s, g: moe_combine(o, w[:, ::-1], s, g)),
]  # fmt: skip

NGRAM_TABLE = [
    WrongStep("fills missing context with the current token", "ngram.context_tokens", uncut_context),
    WrongStep("hashes the oldest token first", "ngram.context_tokens", lambda *a: context_tokens(*a)[::-1]),
    WrongStep("rolls heads", "operations.ple_hash_rows", lambda *a: np.roll(ple_hash_rows(*a), 4, axis=1)),
    WrongStep("forgets the root of the score", "ngram.ple_gate", lambda *a: ple_gate_with(*a, activation=sigmoid)),
    WrongStep("loses the sign of the score", "ngram.ple_gate", lambda *a: ple_gate_with(*a, activation=unsigned_gate)),
    WrongStep("does not dilate the convolution", "ngram.ple_conv", lambda x, h, t, d: ple_conv(x, h[-3:], t, 1)),
    WrongStep("reverses the taps", "ngram.ple_conv", lambda x, h, t, d: ple_conv(x, h, t[:, ::-1], d)),
    WrongStep("forgets silu after the convolution", "ngram.silu", widened),
]  # fmt: skip

WRONG_STEPS = [*STREAMS, *DELTA_NETWORK, *ATTENTION, *EXPERTS, *NGRAM_TABLE]
