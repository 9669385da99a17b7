"""Sections 4, 5 and 7: lanes and trees, norms, activation codes.  Lanes are a parameter so that wrong orders can be made."""

import numpy as np

from tests.unit.numerics.stranger.arithmetic import F32, fma, from_bits, half, magnitude, round_even, saturated_half


def tree(lanes) -> np.ndarray:
    """Halve the last dimension until one is left."""
    while lanes.shape[-1] > 1:
        middle = lanes.shape[-1] // 2
        lanes = lanes[..., :middle] + lanes[..., middle:]
    return lanes[..., 0]


def dot(a, b, n_lanes: int) -> np.ndarray:
    """Sum of a_i * b_i over the last dimension in `n_lanes` lanes; the other dimensions broadcast."""
    a, b = np.asarray(a, F32), np.asarray(b, F32)
    shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    lanes = np.zeros((*shape, n_lanes), F32)
    for at in range(0, a.shape[-1], n_lanes):
        part = slice(at, at + n_lanes)
        width = a[..., part].shape[-1]
        lanes[..., :width] = fma(a[..., part], b[..., part], lanes[..., :width])
    with np.errstate(invalid="ignore", over="ignore"):
        return tree(lanes)


def dot8(a, b) -> np.ndarray:
    return dot(a, b, 8)


def inverse_rms(x, eps, n_lanes: int = 32) -> np.ndarray:
    x = np.asarray(x, F32)
    with np.errstate(all="ignore"):
        return F32(1) / np.sqrt(dot(x, x, n_lanes) / F32(x.shape[-1]) + F32(eps))


def inverse_l2(x, eps, n_lanes: int = 32) -> np.ndarray:
    with np.errstate(all="ignore"):
        return F32(1) / np.sqrt(dot(x, x, n_lanes) + F32(eps))


def normed(x, weight, eps, n_lanes: int = 32) -> np.ndarray:
    """(x * inverse_rms) * weight over the last dimension."""
    with np.errstate(all="ignore"):
        return (np.asarray(x, F32) * inverse_rms(x, eps, n_lanes)[..., None]) * weight


def codes(x, span: int = 32, as_halves: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Code rows [rows, n]: int8 codes [rows, n], float32 scales (as halves where asked) and int32 sums [rows, n/32]."""
    x = np.asarray(x, F32)
    n_rows, n = x.shape
    out, scales = np.zeros((n_rows, n), np.int8), np.zeros((n_rows, n // 32), F32)
    for first in range(0, n, span):
        part = x[:, first : first + span]
        largest = magnitude(part).max(axis=1)
        finite, tiny = largest < 0x7F800000, largest < 0x0D800000
        a = from_bits(np.where(finite & ~tiny, largest, 0x3F800000))
        dx = np.where(finite, np.where(tiny, F32(0), a / F32(127)), F32(np.nan))
        inverse = F32(127) / a
        plain = np.where((finite & ~tiny)[:, None], part, F32(0))
        out[:, first : first + span] = round_even(plain * inverse[:, None])
        stored = half(saturated_half(dx)) if as_halves else dx
        scales[:, first // 32 : (first + part.shape[1]) // 32] = stored[:, None]
    return out, scales, out.reshape(n_rows, n // 32, 32).sum(axis=2, dtype=np.int32)
