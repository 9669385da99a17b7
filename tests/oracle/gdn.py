"""The gated delta network's steps: causal convolution, head norms, gates, the recurrence, the gated output norm.

Contract: float64; rows are consecutive tokens of one session in order; states go in and new states come out.
State M of a value head is [S (key), S (value)].  Does not know: projections' weights, layers.
"""

import numpy as np

from tests.oracle.elementary import rms, sigmoid, silu, softplus, widened


def gdn_conv(inputs, history, taps) -> tuple[np.ndarray, np.ndarray]:
    """Depthwise causal convolution, then silu.

    inputs u [rows, channels], history [kernel-1, channels] (u of the rows before, oldest first, zero at the start),
    taps [channels, kernel] (tap 0 oldest) -> silu(conv(u)) [rows, channels], new history.
    """
    taps = widened(taps)
    kernel = taps.shape[1]
    padded = np.concatenate((widened(history), widened(inputs)))
    rows = len(padded) - (kernel - 1)
    total = sum(padded[j : j + rows] * taps[:, j] for j in range(kernel))
    return silu(total), padded[rows:].copy()


def gdn_split(mixed, n_key_heads: int, n_value_heads: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut [rows, (2*Gq + Gv)*S] into q [rows, Gq, S], k [rows, Gq, S], v [rows, Gv, S]."""
    mixed = widened(mixed)
    cut = n_key_heads * size
    query, key, value = np.split(mixed, (cut, 2 * cut), axis=1)
    key_shape = (len(mixed), n_key_heads, size)
    return query.reshape(key_shape), key.reshape(key_shape), value.reshape(len(mixed), n_value_heads, size)


def gdn_qk_norm(x, eps: float) -> np.ndarray:
    """Unit length per head: x / sqrt(sum(x^2) + eps) over the last dimension (a sum, not a mean)."""
    x = widened(x)
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + eps)


def gdn_gates(alpha, beta, dt_bias, a) -> tuple[np.ndarray, np.ndarray]:
    """Decay and write strength: alpha, beta [rows, Gv] (projections), dt_bias, a [Gv] -> g, beta [rows, Gv]."""
    decay = np.exp(softplus(widened(alpha) + widened(dt_bias)) * widened(a))
    return decay, sigmoid(beta)


def gdn_scan(query, key, value, decay, beta, state) -> tuple[np.ndarray, np.ndarray]:
    """Advance the delta rule row by row.

    query, key [rows, Gq, S] (normed), value [rows, Gv, S], decay, beta [rows, Gv], state [Gv, S, S]
    -> o [rows, Gv, S] (divided by sqrt(S)), new state.  Value head h meets key head h mod Gq.
    """
    query, key, value, decay, beta = (widened(x) for x in (query, key, value, decay, beta))
    state = widened(state).copy()
    rows, n_heads, size = value.shape
    partner = np.arange(n_heads) % key.shape[1]
    outputs = np.empty((rows, n_heads, size))
    for row in range(rows):
        q, k = query[row, partner], key[row, partner]
        g = decay[row][:, None]
        recalled = np.einsum("hk,hkv->hv", k, state)
        delta = beta[row][:, None] * (value[row] - g * recalled)
        state = g[:, :, None] * state + k[:, :, None] * delta[:, None, :]
        outputs[row] = np.einsum("hk,hkv->hv", q, state) / np.sqrt(size)
    return outputs, state


def gdn_gate_norm(outputs, gate, norm, eps: float) -> np.ndarray:
    """rms(o_h) * norm * sigmoid(z_h): outputs [rows, Gv, S], gate [rows, Gv*S], norm [S] -> [rows, Gv*S]."""
    outputs = widened(outputs)
    gated = rms(outputs, eps) * widened(norm) * sigmoid(gate).reshape(outputs.shape)
    return gated.reshape(len(outputs), -1)
