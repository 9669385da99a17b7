"""The best of a row of logits, and the log probabilities of a row.

Ranking: larger value first, equal values by the lower id (so -0 equals +0).  Rows must be finite: the caller has checked.
Log probability of id i = (l_i - top) - log(sum of exp(l - top)) over the whole row, in double; the sum runs in 256 lanes
(element i in lane i mod 256, a chain per lane in ascending i) that a halving tree adds.  Does not know: penalties, draws.
"""

import numpy as np

from strata.numerics.cpu import kernel
from strata.numerics.orders import WIDE
from strata.sampling import doubles

ZERO = np.float64(0.0)
_exp, _log = doubles.exp, doubles.log


@kernel
def _best(values, ids, best):
    """Fill ids int32 [k] and best float64 [k] with the k best of values [n], k <= n, by insertion."""
    k, held = ids.shape[0], 0
    for i in range(values.shape[0]):
        value = np.float64(values[i])
        if held == k and not (value > best[k - 1]):
            continue
        at = held if held < k else k - 1
        while at > 0 and value > best[at - 1]:
            ids[at], best[at] = ids[at - 1], best[at - 1]
            at -= 1
        ids[at], best[at] = i, value
        held = held + 1 if held < k else k


def best_candidates(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (ids int32, values float64) of the `count` best of values [n] (all where n is less), best first."""
    k = min(count, values.shape[0])
    ids, best = np.empty(k, np.int32), np.empty(k, np.float64)
    _best(values, ids, best)
    return ids, best


@kernel
def log_of_total(values, top):
    """Return log(sum of exp(v - top)) of values float32 [n], in double."""
    lanes = np.zeros(WIDE, np.float64)
    for i in range(values.shape[0]):
        lanes[i % WIDE] += _exp(np.float64(values[i]) - top)
    width = WIDE // 2
    while width > 0:
        for lane in range(width):
            lanes[lane] += lanes[lane + width]
        width //= 2
    return _log(lanes[0])


@kernel
def exponentials(values):
    """Return exp of each of values float64 [n]."""
    out = np.empty_like(values)
    for i in range(values.shape[0]):
        out[i] = _exp(values[i])
    return out


@kernel
def logarithm(value):
    """Return the natural logarithm of a float64."""
    return _log(value)
