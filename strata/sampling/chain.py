"""The chain of filters and the draw: top_k, top_p, min_p, temperature, softmax, first index with u < cumulative.

Works on candidates, best first (value descending, lower id on ties), in double.  Sums run in that order; every operation is
rounded once, `exp` and `log` are `strata.sampling.doubles`.

    top_p        e_i = exp(l_i - l_0), total = chain of e_i; keep through the first i where the chain of e_i / total reaches p
    min_p        keep l_i >= l_0 + ln(min_p)
    temperature  d_i = (l_i - l_0) / temperature
    draw         e_i = exp(d_i), total = chain of e_i; the first i with u < chain of e_i / total, else the last

Does not know: vocabularies, seeds, penalties.
"""

import numpy as np

from strata.sampling.candidates import exponentials, logarithm
from strata.sampling.settings import Sampling


def _chain(values: np.ndarray) -> float:
    total = 0.0
    for value in values.tolist():
        total += value
    return total


def _reach(weights: np.ndarray, bound: float, *, is_strict: bool) -> int:
    """Return the first index whose cumulative share reaches the bound (exceeds it where strict); the last one if none does."""
    total, reached = _chain(weights), 0.0
    for index, weight in enumerate(weights.tolist()):
        reached += weight / total
        if reached > bound or (reached == bound and not is_strict):
            return index
    return len(weights) - 1


def keep_top_p(values: np.ndarray, top_p: float) -> np.ndarray:
    """Return the leading candidates whose probabilities reach top_p; at least one."""
    if top_p >= 1:
        return values
    return values[: _reach(exponentials(values - values[0]), top_p, is_strict=False) + 1]


def keep_min_p(values: np.ndarray, min_p: float) -> np.ndarray:
    """Return the leading candidates that are at least min_p times as probable as the first."""
    if min_p <= 0:
        return values
    lowest = values[0] + logarithm(np.float64(min_p))
    return values[values >= lowest]


def draw(values: np.ndarray, sampling: Sampling, u: float) -> int:
    """Return the index of the candidate that u in [0, 1) falls on; values float64, best first, at most top_k of them."""
    kept = keep_min_p(keep_top_p(values, sampling.top_p), sampling.min_p)
    return _reach(exponentials((kept - kept[0]) / np.float64(sampling.temperature)), u, is_strict=True)
