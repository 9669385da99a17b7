"""Rotary tables that do not depend on a platform's mathematics library.

For dimension pair i of r and position p the angle is p * base^(-2i/r).  The inverse frequencies come from correctly
rounded decimal arithmetic, the sine and cosine from our own float64 polynomials after a three-part reduction by pi/2,
all in operations that IEEE 754 rounds exactly; the results are rounded once to float32.  Tables are made on the CPU and
uploaded, never recomputed on a card; `fingerprint` enters the golden files.  Does not know: heads, layers.
"""

import hashlib
from decimal import Decimal, localcontext

import numpy as np

HALF_PI_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
"""pi/2 in three parts: the first two have 33 bits, so products with the quadrant are exact below 2^20 quadrants."""
TWO_OVER_PI = 0.6366197723675814
SINE = (-1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04, 2.75573137070700676789e-06,
        -2.50507602534068634195e-08, 1.58969099521155010221e-10)
COSINE = (4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05, -2.75573143513906633035e-07,
          2.08757232129817482790e-09, -1.13596475577881948265e-11)


def inverse_frequencies(base: float, n_dims: int) -> np.ndarray:
    """Return base^(-2i/n_dims) for i < n_dims/2, float64 [n_dims/2], each the rounding of a 40-digit decimal."""
    with localcontext() as context:
        context.prec = 40
        logarithm = Decimal(base).ln()
        return np.array([float((logarithm * Decimal(-2 * i) / Decimal(n_dims)).exp()) for i in range(n_dims // 2)])


def _polynomial(z: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    value = np.full_like(z, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * z + coefficient
    return value


def sine_cosine(angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (sin, cos) of float64 angles with 0 <= angle < 2^20, from exactly rounded elementary operations."""
    quadrant = np.floor(angle * TWO_OVER_PI + 0.5)
    r = angle - quadrant * HALF_PI_PARTS[0]
    r = r - quadrant * HALF_PI_PARTS[1]
    r = r - quadrant * HALF_PI_PARTS[2]
    z = r * r
    sine = r + r * z * _polynomial(z, SINE)
    cosine = 1.0 - 0.5 * z + z * z * _polynomial(z, COSINE)
    turn = quadrant.astype(np.int64) & 3
    swap = (turn & 1).astype(bool)
    first, second = np.where(swap, cosine, sine), np.where(swap, sine, cosine)
    return np.where(turn >= 2, -first, first), np.where((turn == 1) | (turn == 2), -second, second)


def rotary_table(base: float, n_dims: int, n_positions: int) -> np.ndarray:
    """Return the table float32 [n_positions, 2, n_dims/2]: cosines, then sines."""
    angle = np.arange(n_positions, dtype=np.float64)[:, None] * inverse_frequencies(base, n_dims)[None, :]
    sine, cosine = sine_cosine(angle)
    return np.ascontiguousarray(np.stack((cosine, sine), axis=1).astype(np.float32))


def fingerprint(table: np.ndarray) -> str:
    """Return a short hash of a table's bits."""
    return hashlib.blake2b(np.ascontiguousarray(table).tobytes(), digest_size=16).hexdigest()
