"""Penalties on tokens that were seen lately.

For each id among the last `penalty_last_n` tokens up to and including the row's own, with its count there:

    l = l * repeat  where l <= 0,  else  l / repeat;      l = l - (count * freq + present)

in double, each operation rounded.  The history of a window's row is what its conversation consumed and the window's rows up
to it.  Does not know: windows, draws.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from strata.errors import RequestError
from strata.sampling.settings import Sampling


def penalised(logits: np.ndarray, history: Sequence[int], sampling: Sampling) -> np.ndarray:
    """Return float64 [vocabulary] from float32 logits; raises RequestError where a penalty takes a value out of range."""
    values = logits.astype(np.float64)
    repeat, freq, present = float(sampling.penalty_repeat), float(sampling.penalty_freq), float(sampling.penalty_present)
    for token, count in Counter(history[-sampling.penalty_last_n :]).items():
        value = float(values[token])
        value = value * repeat if value <= 0 else value / repeat
        values[token] = value - (count * freq + present)
    if not np.isfinite(values).all():
        raise RequestError("penalties", "a penalised logit is not finite", "use penalties closer to 1 and 0")
    return values
