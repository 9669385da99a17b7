"""Reading the residual's C streams as one vector, and writing a block's result back.

Contract: the residual is [rows, C, H] float64; flat order is c*H + d.  A read serves a block (with `inject`) or the
head (without).  Does not know: what the block computes.
"""

import numpy as np

from tests.oracle.elementary import linear, rms, sigmoid, silu, widened


def stream_read(residual, norm, down, up, inject, eps: float) -> tuple[np.ndarray, np.ndarray | None]:
    """Mix the streams into one vector by a low-rank gate.

    residual [rows, C, H], norm [C*H] or [C, H], down [rank, C*H], up [C*H, rank], inject [C, C*H] or None
    -> mixed [rows, H], inject values [rows, C] (None without `inject`).
    """
    residual = widened(residual)
    rows, n_streams, width = residual.shape
    normed = rms(residual, eps) * widened(norm).reshape(n_streams, width)
    flat = normed.reshape(rows, n_streams * width)
    low = silu(linear(flat, down) / n_streams)
    gate = sigmoid(linear(low, up)).reshape(rows, n_streams, width)
    mixed = np.sum(normed * gate, axis=1) / n_streams
    return mixed, None if inject is None else linear(flat, inject)


def stream_write(residual, output, injected) -> np.ndarray:
    """Add a block's output to every stream: R[c] + y * 2 sigmoid(inj[c] / C).

    residual [rows, C, H], output [rows, H], injected [rows, C] (from the read that fed the block) -> [rows, C, H].
    """
    residual = widened(residual)
    gate = 2.0 * sigmoid(widened(injected) / residual.shape[1])
    return residual + widened(output)[:, None, :] * gate[:, :, None]
