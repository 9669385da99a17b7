"""Section 2 and 3 of the document, with the document's constants."""

import numpy as np

from tests.unit.numerics.document import constants
from tests.unit.numerics.stranger.arithmetic import F32, bits, fma, from_bits, round_even


def horner(x, *coefficients) -> np.ndarray:
    """Highest coefficient first, fused."""
    value = np.full(np.shape(x), coefficients[0], F32)
    for coefficient in coefficients[1:]:
        value = fma(value, x, coefficient)
    return value


def exp(x) -> np.ndarray:
    x, c = np.asarray(x, F32), constants()
    with np.errstate(invalid="ignore", over="ignore"):
        inside = (x > c["EXP_LOWEST"]) & ~(x > c["EXP_HIGHEST"])
        safe = np.where(inside, x, F32(0))
        n = round_even(safe * c["LOG2_E"])
        r = fma(n.astype(F32), c["MINUS_LN2_LOW"], fma(n.astype(F32), c["MINUS_LN2_HIGH"], safe))
        p = horner(r, *(c[f"EXP_{k}"] for k in (7, 6, 5, 4, 3, 2)))
        value = fma(r * r, p, r) + F32(1)
        first = n >> 1
        scaled = (value * from_bits((first + 127) << 23)) * from_bits((n - first + 127) << 23)
        outside = np.where(np.isnan(x), x, np.where(x > 0, F32(np.inf), F32(0)))
    return np.where(inside, scaled, outside)


def sigmoid(x) -> np.ndarray:
    x = np.asarray(x, F32)
    with np.errstate(all="ignore"):
        e, inverse = exp(x), exp(F32(0) - x)
        return np.where(x < 0, e / (F32(1) + e), F32(1) / (F32(1) + inverse))


def silu(x) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.asarray(x, F32) * sigmoid(x)


def softplus(x) -> np.ndarray:
    x, c = np.asarray(x, F32), constants()
    with np.errstate(all="ignore"):
        t = exp(F32(0) - np.where(x > 0, x, F32(0) - x))
        s = t / (F32(2) + t)
        z = s * s
        p = horner(z, *(c[f"ATANH_{k}"] for k in (5, 4, 3, 2, 1, 0)))
        small = np.where(x > 0, x, F32(0)) + F32(2) * fma(s * z, p, s)
        return np.where((x > 20) | np.isnan(x), x, small)


def key(x) -> np.ndarray:
    """int64 rank keys."""
    x = np.asarray(x, F32)
    with np.errstate(invalid="ignore"):
        b = bits(x + F32(0)).astype(np.int64)
    return np.where(np.isnan(x), -(2**31), np.where(b >= 0, b, b ^ 0x7FFFFFFF)).reshape(x.shape)


def best_first(values) -> np.ndarray:
    """Indices of one row by key descending, lower index first."""
    return np.argsort(-key(values), kind="stable")
