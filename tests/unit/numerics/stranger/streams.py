"""Section 10.1: the residual's streams.  Residual [rows, C, H] float32."""

import numpy as np

from tests.unit.numerics.stranger.arithmetic import F32, fma
from tests.unit.numerics.stranger.functions import sigmoid, silu
from tests.unit.numerics.stranger.sums import normed


def norm_streams(residual, weight, eps, n_lanes: int = 32) -> np.ndarray:
    """xn [rows, C*H]."""
    rows, n_streams, hidden = residual.shape
    return normed(residual, weight.reshape(n_streams, hidden), eps, n_lanes).reshape(rows, -1)


def low_rank(low, n_streams: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        return silu(low / F32(n_streams))


def mixed(xn, up, n_streams: int, ascending: bool = True) -> np.ndarray:
    """[rows, C*H] twice -> [rows, H]."""
    xn, gate = (a.reshape(a.shape[0], n_streams, -1) for a in (xn, sigmoid(up)))
    order = range(n_streams) if ascending else range(n_streams - 1, -1, -1)
    total = None
    with np.errstate(all="ignore"):
        for c in order:
            total = xn[:, c] * gate[:, c] if total is None else fma(xn[:, c], gate[:, c], total)
        return total / F32(n_streams)


def written(residual, y, inject) -> np.ndarray:
    with np.errstate(all="ignore"):
        gate = F32(2) * sigmoid(inject / F32(residual.shape[1]))
    return fma(y[:, None, :], gate[:, :, None], residual)
