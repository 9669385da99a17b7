"""What routing has asked for: counts of routed entries per (layer, expert), and the profile made from them.

`counts` int32 [2, layers, experts]: `DECODED` in windows that decode, `READ` in prompt chunks; executors add to them, and
the array can lie in a card's memory.  The adaptive tier looks at decoding alone, a profile at both.
Does not know: caches, files.
"""

import numpy as np

DECODED, READ = 0, 1


def new_counts(n_layers: int, n_experts: int) -> np.ndarray:
    """Return counts of nothing."""
    return np.zeros((2, n_layers, n_experts), np.int32)


def ranked(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (pairs int32 [n, 2], shares float64 [n]): what was routed to, hottest first; ties: lower layer, then lower id."""
    total = counts.astype(np.int64).sum(axis=0)
    flat = total.reshape(-1)
    order = np.argsort(-flat, kind="stable")
    order = order[flat[order] > 0]
    pairs = np.stack(np.divmod(order, total.shape[1]), axis=1).astype(np.int32)
    return pairs, flat[order] / max(1, int(flat.sum()))
