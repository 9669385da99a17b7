"""The n-gram table's steps: hash rows, the gate against the residual, the dilated convolution.

Contract: hashes are unsigned 64-bit with wrap-around, done here in Python integers cut to 64 bits; everything else is
float64 with rows first.  Does not know: which layers carry a table.
"""

from collections.abc import Sequence

import numpy as np

from tests.oracle.elementary import linear, rms, sigmoid, silu, widened

WORD_MASK = (1 << 64) - 1
SMALLEST_SCORE = 1e-6


def context_tokens(current: int, previous: Sequence[int], ngram: int, end_token: int) -> list[int]:
    """Return [c0, c1, ...]: the current token and those before it, `end_token` from the first cut on.

    `previous` is the session's tokens before this one, most recent last; a missing or end token cuts all older ones.
    """
    context, cut = [int(current)], False
    for distance in range(1, ngram):
        cut = cut or distance > len(previous) or int(previous[-distance]) == end_token
        context.append(end_token if cut else int(previous[-distance]))
    return context


def ple_hash_rows(tokens, previous, multipliers, sizes, offsets, heads_per_ngram: int, end_token: int) -> np.ndarray:
    """Table rows of each token: tokens [rows], previous (most recent last) -> int64 [rows, heads].

    Head h hashes the (h // heads_per_ngram + 2)-gram: xor of c_i * m_i in uint64, modulo sizes[h], plus offsets[h].
    """
    seen = [int(token) for token in previous]
    result = np.empty((len(tokens), len(sizes)), dtype=np.int64)
    for row, token in enumerate(tokens):
        context = context_tokens(token, seen, len(multipliers), end_token)
        seen.append(int(token))
        hashes, running = [], 0
        for part, multiplier in zip(context, multipliers, strict=True):
            running ^= (part * int(multiplier)) & WORD_MASK
            hashes.append(running)
        for head, (size, offset) in enumerate(zip(sizes, offsets, strict=True)):
            result[row, head] = hashes[head // heads_per_ngram + 1] % int(size) + int(offset)
    return result


def ple_embedding(table, rows) -> np.ndarray:
    """Look rows up and join the heads, head 0 first: table [entries, d], rows [rows, heads] -> [rows, heads*d]."""
    return widened(np.asarray(table)[rows]).reshape(len(rows), -1)


def ple_gate(residual, key, value, norm_key, norm_query, eps: float) -> np.ndarray:
    """Gate the n-gram value per stream.

    residual [rows, C, H], key [rows, C*H] and value [rows, H] (projections of e), norms [C*H] -> gated [rows, C, H].
    """
    residual = widened(residual)
    _, n_streams, width = residual.shape
    keys = rms(widened(key).reshape(residual.shape), eps) * widened(norm_key).reshape(n_streams, width)
    queries = rms(residual, eps) * widened(norm_query).reshape(n_streams, width)
    score = np.sum(keys * queries, axis=-1) / np.sqrt(width)
    gate = sigmoid(np.sign(score) * np.sqrt(np.maximum(np.abs(score), SMALLEST_SCORE)))
    return widened(value)[:, None, :] * gate[:, :, None]


def ple_conv(inputs, history, taps, dilation: int) -> tuple[np.ndarray, np.ndarray]:
    """Dilated depthwise causal convolution (no silu).

    inputs nr [rows, C*H], history [(kernel-1)*dilation, C*H] (oldest first), taps [C*H, kernel] (tap 0 oldest)
    -> conv [rows, C*H], new history.
    """
    taps = widened(taps)
    padded = np.concatenate((widened(history), widened(inputs)))
    rows = len(inputs)
    total = sum(padded[j * dilation : j * dilation + rows] * taps[:, j] for j in range(taps.shape[1]))
    return total, padded[rows:].copy()


def ple_block(
    residual, embedding, key, value, norm_key, norm_query, norm_conv, taps, history, dilation: int, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """Add the n-gram block to the residual: R + gated + silu(conv(rms(gated) * norm_conv)).

    residual [rows, C, H], embedding e [rows, n], weights key [C*H, n], value [H, n], norms [C*H], taps [C*H, kernel],
    history as in `ple_conv` -> new residual, new history.
    """
    residual = widened(residual)
    gated = ple_gate(residual, linear(embedding, key), linear(embedding, value), norm_key, norm_query, eps)
    normed = rms(gated, eps).reshape(len(residual), -1) * widened(norm_conv)
    convolved, history = ple_conv(normed, history, taps, dilation)
    return residual + gated + silu(convolved).reshape(residual.shape), history
