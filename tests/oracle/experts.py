"""The mixture of experts' steps: router, one expert, the weighted sum.

Contract: float64; experts are ranked by router logit, which in exact arithmetic is the order of the probabilities;
equal logits give the lower index first.  Does not know: where experts are stored.
"""

import numpy as np

from tests.oracle.elementary import linear, sigmoid, silu, softmax, widened

WEIGHT_SUM_FLOOR = 2.0**-14
"""Lower bound of the chosen probabilities' sum in the renormalisation."""


def router(logits, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose `k` experts: logits [rows, E] -> ids int64 [rows, k] rank by rank, weights [rows, k]."""
    logits = widened(logits)
    ids = np.argsort(-logits, axis=-1, kind="stable")[:, :k]
    chosen = np.take_along_axis(softmax(logits), ids, axis=-1)
    return ids, chosen / np.maximum(chosen.sum(axis=-1, keepdims=True), WEIGHT_SUM_FLOOR)


def expert_ffn(x, gate, up, down) -> np.ndarray:
    """down . (silu(gate . x) * (up . x)): x [rows, H], gate, up [F, H], down [H, F] -> [rows, H]."""
    return linear(silu(linear(x, gate)) * linear(x, up), down)


def moe_combine(outputs, weights, shared, shared_logit) -> np.ndarray:
    """Weighted sum in rank order, the shared expert last.

    outputs [rows, K, H] in rank order, weights [rows, K], shared [rows, H], shared_logit [rows] -> [rows, H].
    """
    outputs, weights = widened(outputs), widened(weights)
    total = np.zeros((len(outputs), outputs.shape[2]))
    for rank in range(weights.shape[1]):
        total += weights[:, rank, None] * outputs[:, rank]
    return total + sigmoid(shared_logit)[:, None] * widened(shared)
