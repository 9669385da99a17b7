"""Section 10.2: the gated delta net, for one session's consecutive tokens."""

import numpy as np

from tests.unit.numerics.stranger.arithmetic import F32, fma, magnitude
from tests.unit.numerics.stranger.functions import exp, sigmoid, silu, softplus
from tests.unit.numerics.stranger.sums import inverse_l2, normed, tree


def convolved(u, history, taps, dilation: int = 1, fused: bool = True) -> np.ndarray:
    """Causal convolution without silu: u [rows, channels], history [(n_taps-1)*dilation, channels], taps [channels, n_taps]."""
    padded, rows = np.concatenate((history, u)).astype(F32), u.shape[0]
    with np.errstate(all="ignore"):
        total = taps[:, 0] * padded[:rows]
        for j in range(1, taps.shape[1]):
            value = padded[j * dilation : j * dilation + rows]
            total = fma(taps[:, j], value, total) if fused else taps[:, j] * value + total
    return total


def unit_heads(w, n_heads: int, size: int, eps) -> np.ndarray:
    """w [rows, channels] with its first n_heads vectors of `size` divided by their length."""
    out, heads = w.copy(), w[:, : n_heads * size].reshape(-1, n_heads, size)
    with np.errstate(all="ignore"):
        out[:, : n_heads * size] = (heads * inverse_l2(heads, eps)[..., None]).reshape(w.shape[0], -1)
    return out


def gates(alpha, beta, bias, decay) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(all="ignore"):
        return exp(softplus(alpha + bias) * decay), sigmoid(beta)


def times_memory(x, memory, n_lanes: int = 8) -> np.ndarray:
    """x [heads, S], memory [heads, S, S] -> [heads, S]."""
    lanes = np.zeros((memory.shape[0], memory.shape[2], n_lanes), F32)
    for i in range(memory.shape[1]):
        lane = lanes[:, :, i % n_lanes]
        lane[...] = fma(x[:, i, None], memory[:, i], lane)
    with np.errstate(all="ignore"):
        return tree(lanes)


def advanced(memory, k, v, g, beta, fused: bool = True) -> np.ndarray:
    """One token: memory [heads, S, S], k, v [heads, S], g, beta [heads] -> the new memory."""
    recalled = times_memory(k, memory)
    with np.errstate(all="ignore"):
        delta = beta[:, None] * fma((F32(0) - g)[:, None], recalled, v)
        kept = g[:, None, None] * memory
        fresh = fma(k[:, :, None], delta[:, None, :], kept) if fused else k[:, :, None] * delta[:, None, :] + kept
    return np.where(magnitude(fresh) < 0x0D800000, F32(0), fresh)


def scanned(w, g, beta, memory, n_k_heads: int, fused: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """w [rows, channels] (q heads, k heads, v heads) -> o [rows, v heads * S], the memory after the last row."""
    n_heads, size = memory.shape[:2]
    heads = w.reshape(w.shape[0], -1, size)
    partner, out = np.arange(n_heads) % n_k_heads, np.empty((w.shape[0], n_heads * size), F32)
    for row in range(w.shape[0]):
        q, k, v = heads[row, partner], heads[row, n_k_heads + partner], heads[row, 2 * n_k_heads :]
        memory = advanced(memory, k, v, g[row], beta[row], fused)
        with np.errstate(all="ignore"):
            out[row] = (times_memory(q, memory) * (F32(1) / np.sqrt(F32(size)))).reshape(-1)
    return out, memory


def gate_normed(o, z, weight, eps) -> np.ndarray:
    with np.errstate(all="ignore"):
        heads = normed(o.reshape(o.shape[0], -1, weight.shape[0]), weight, eps)
        return heads.reshape(o.shape) * sigmoid(z)


def convolution_and_silu(u, history, taps) -> np.ndarray:
    return silu(convolved(u, history, taps))
