"""Float32 arithmetic with one rounding per operation, on numpy arrays: the stranger's ground floor.

numpy's own `+ - * /` and `sqrt` on float32 arrays are correctly rounded.  A fused multiply-add is made from float64: the
product of two float32 numbers is exact there; the sum with the third is rounded to odd (the error term tells where it was
inexact), after which rounding to 24 bits is that of the exact value (Boldo and Melquiond 2008).
Shapes broadcast.  Does not know: orders, functions.
"""

from fractions import Fraction

import numpy as np

F32 = np.float32


def fma(a, b, c) -> np.ndarray:
    """a * b + c rounded once to float32."""
    a, b, c = (np.asarray(value, F32).astype(np.float64) for value in (a, b, c))
    with np.errstate(all="ignore"):
        product = a * b
        total = product + c
        back = total - product
        error = (product - (total - back)) + (c - back)
        is_even = (np.atleast_1d(total).view(np.int64).reshape(total.shape) & 1) == 0
        inexact = np.isfinite(total) & (error != 0) & is_even
        total = np.where(inexact, np.nextafter(total, np.copysign(np.inf, error)), total)
        return total.astype(F32)


def round_fraction(value: Fraction) -> np.float32:
    """The float32 nearest to an exact non-zero value, ties to even: integers only, slow, obviously right."""
    magnitude, unit = abs(value), Fraction(1, 2**149)
    while magnitude / unit >= 2**24:
        unit *= 2
    whole, rest = divmod(magnitude, unit)
    whole += rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1)
    result = float(whole * unit) if whole * unit < Fraction(2) ** 128 else np.inf
    return F32(result if value > 0 else -result)


def bits(x) -> np.ndarray:
    """Bits as int32."""
    return np.ascontiguousarray(x, F32).view(np.int32)


def magnitude(x) -> np.ndarray:
    return bits(x) & 0x7FFFFFFF


def from_bits(b) -> np.ndarray:
    return np.ascontiguousarray(b, np.int32).view(F32)


def round_even(x) -> np.ndarray:
    """Nearest integer, ties to even, int64."""
    return np.rint(np.asarray(x, F32)).astype(np.int64)


def half(h) -> np.ndarray:
    return np.ascontiguousarray(h, np.uint16).view(np.float16).astype(F32)


def brain(h) -> np.ndarray:
    return (np.ascontiguousarray(h, np.uint16).astype(np.uint32) << 16).view(F32)


def saturated_half(x) -> np.ndarray:
    """uint16 bits of the half nearest to x, at most 65504."""
    x = np.asarray(x, F32)
    clamped = np.where(x > 65504, F32(65504), np.where(x < -65504, F32(-65504), x))
    return clamped.astype(np.float16).view(np.uint16)
