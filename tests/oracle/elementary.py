"""The small functions that every room of the oracle uses: activations, norm, product, rotation.

Contract: float64 in and out (other inputs are widened), leading dimensions are rows, nothing is modified in place.
Does not know: layers, weights' names, state.
"""

import numpy as np


def widened(x) -> np.ndarray:
    """Return `x` as float64 (no copy when it already is)."""
    return np.asarray(x, dtype=np.float64)


def sigmoid(x) -> np.ndarray:
    """1 / (1 + exp(-x)), elementwise."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-widened(x)))


def silu(x) -> np.ndarray:
    """x / (1 + exp(-x)), elementwise."""
    x = widened(x)
    with np.errstate(over="ignore"):
        return x / (1.0 + np.exp(-x))


def softplus(x) -> np.ndarray:
    """log(1 + exp(x)), and x itself above 20, elementwise."""
    x = widened(x)
    return np.where(x > 20.0, x, np.log1p(np.exp(np.minimum(x, 20.0))))


def rms(x, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) over the last dimension."""
    x = widened(x)
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def linear(x, weight) -> np.ndarray:
    """Matrix-vector products: x [..., in], weight [out, in] -> [..., out]."""
    return widened(x) @ widened(weight).T


def softmax(x) -> np.ndarray:
    """Softmax over the last dimension."""
    x = widened(x)
    powers = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return powers / np.sum(powers, axis=-1, keepdims=True)


def rope(x, positions, base: float, dims: int) -> np.ndarray:
    """Turn the first `dims` entries of each head, pairing i with i + dims/2.

    x [rows, ..., head size], positions [rows] (tokens) -> same shape; angle of pair i is position * base^(-2i/dims).
    """
    x = widened(x)
    half = dims // 2
    angles = widened(positions)[:, None] * base ** (-2.0 * np.arange(half) / dims)
    angles = angles.reshape((len(x),) + (1,) * (x.ndim - 2) + (half,))
    cosine, sine = np.cos(angles), np.sin(angles)
    first, second, rest = x[..., :half], x[..., half:dims], x[..., dims:]
    return np.concatenate((first * cosine - second * sine, second * cosine + first * sine, rest), axis=-1)
