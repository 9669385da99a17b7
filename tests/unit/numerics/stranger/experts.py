"""Section 10.4: routing and combining."""

import numpy as np

from tests.unit.numerics.stranger.arithmetic import F32, fma
from tests.unit.numerics.stranger.functions import best_first, exp, sigmoid, silu


def routed(logits, n_used: int) -> tuple[np.ndarray, np.ndarray]:
    """logits [rows, E] -> ids, weights [rows, K]."""
    ids = np.stack([best_first(row)[:n_used] for row in logits])
    chosen = np.take_along_axis(logits, ids, axis=1)
    with np.errstate(all="ignore"):
        weights = exp(chosen - chosen[:, :1])
        total = np.zeros(len(ids), F32)
        for rank in range(n_used):
            total = total + weights[:, rank]
        return ids, weights / total[:, None]


def activated(gate, up) -> np.ndarray:
    with np.errstate(all="ignore"):
        return silu(gate) * up


def combined(outputs, weights, shared, shared_logit, order=None) -> np.ndarray:
    """outputs [rows, K, H] in rank order; `order` other than ascending is not the contract's."""
    order = list(range(weights.shape[1])) if order is None else order
    with np.errstate(all="ignore"):
        total = weights[:, order[0], None] * outputs[:, order[0]]
        for rank in order[1:]:
            total = fma(weights[:, rank, None], outputs[:, rank], total)
        return fma(sigmoid(shared_logit)[:, None], shared, total)
