"""Section 6: rotary tables and turning, with the document's constants."""

from decimal import Decimal, localcontext

import numpy as np

from tests.unit.numerics.document import double_constants
from tests.unit.numerics.stranger.arithmetic import F32


def inverse_frequency(base: float, pair: int, n_dims: int) -> float:
    with localcontext() as context:
        context.prec = 40
        return float((Decimal(base).ln() * (-2 * pair) / n_dims).exp())


def sine_cosine(angle: float) -> tuple[float, float]:
    """Python floats are float64, and Python fuses nothing."""
    c = double_constants()
    k = float(np.floor(angle * c["TWO_OVER_PI"] + 0.5))
    y = ((angle - k * c["PI_0"]) - k * c["PI_1"]) - k * c["PI_2"]
    z = y * y
    s, co = c["S_5"], c["C_5"]
    for i in (4, 3, 2, 1, 0):
        s, co = s * z + c[f"S_{i}"], co * z + c[f"C_{i}"]
    sine, cosine = y + (y * z) * s, (1.0 - 0.5 * z) + (z * z) * co
    return ((sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine))[int(k) % 4]


def table_row(base: float, n_dims: int, position: int) -> np.ndarray:
    """float32 [2, n_dims/2]: cosines, sines."""
    pairs = [sine_cosine(position * inverse_frequency(base, i, n_dims)) for i in range(n_dims // 2)]
    return np.array([[c for _, c in pairs], [s for s, _ in pairs]]).astype(F32)


def turned(x, row) -> np.ndarray:
    """Vectors [..., size] turned by one row [..., 2, r/2]."""
    x, cosine, sine = np.array(x, F32), row[..., 0, :], row[..., 1, :]
    n = cosine.shape[-1]
    with np.errstate(all="ignore"):
        first, second = x[..., :n].copy(), x[..., n : 2 * n].copy()
        x[..., :n] = first * cosine - second * sine
        x[..., n : 2 * n] = second * cosine + first * sine
    return x
