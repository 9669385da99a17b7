"""The one place of tolerances for tests of the numerics and of the host's operations, and what equality of bits means.

Everything else is compared exactly.  Does not know: what is compared.
"""

import numpy as np

UNIT = 2.0**-24
"""Half a unit in the last place of a float32 just above 1: what one rounding may cost, relatively."""

FUNCTION_UNITS = {"exp": 1.40, "sigmoid": 3.00, "silu": 3.85, "softplus": 3.85}
"""Largest relative errors over all float32 arguments, in units of 2^-24: just above the document's table."""

ROTARY_UNITS_IN_THE_LAST_PLACE = 0.5001
"""Rotary entries are float64 values, good to a few units there, rounded once."""

FLOAT32_STEPS = 2e-6
"""Norm of the difference over the norm, for an operation of some hundred float32 roundings against float64."""

LONG_CHAIN = 2e-5
"""The same for operations that feed back into themselves over many tokens."""


def bits(x) -> np.ndarray:
    """The bits of a float32 array with every NaN folded to one; other types unchanged."""
    x = np.ascontiguousarray(x)
    if x.dtype != np.float32:
        return x
    return np.where(np.isnan(x), np.uint32(0x7FC00000), x.view(np.uint32))


def equal_bits(a, b) -> bool:
    """Whether two arrays agree in shape, type and bits (NaN equal to NaN, +0 different from -0)."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.array_equal(bits(a), bits(b)))


def relative_error(actual, expected) -> float:
    """Norm of the difference over the norm of `expected`."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if actual.shape != expected.shape:
        raise ValueError(f"shape={actual.shape}: expected {expected.shape}; compare arrays of one shape")
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def units_off(actual, expected) -> np.ndarray:
    """Relative errors of float32 values against float64 ones, in units of 2^-24."""
    return np.abs(actual.astype(np.float64) - expected) / np.abs(expected) / UNIT
