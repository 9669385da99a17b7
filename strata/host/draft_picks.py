"""The pick of a draft row: the largest logit of the draft vocabulary, and its probability there.

Ranking by key (NaN lowest, ties to the lower index, hence the lower id).  Probability = 1 / sum of exp(l - top), the sum in
256 lanes: element i in lane i mod 256, a chain per lane in ascending i, then the halving tree.  Does not know: ids.
"""

import numpy as np

from strata.numerics.cpu import add, div, kernel, sub
from strata.numerics.on_cpu import exp, key, sum_wide_lanes
from strata.numerics.orders import WIDE

ZERO, ONE = np.float32(0.0), np.float32(1.0)


@kernel
def pick_drafts(logits, best, probability):
    """Fill best int32 [rows] (indices) and probability float32 [rows] from logits float32 [rows, n]."""
    lanes = np.empty(WIDE, np.float32)
    for row in range(logits.shape[0]):
        at, top_key = 0, key(logits[row, 0])
        for i in range(1, logits.shape[1]):
            k = key(logits[row, i])
            if k > top_key:
                at, top_key = i, k
        for lane in range(WIDE):
            lanes[lane] = ZERO
        for i in range(logits.shape[1]):
            lanes[i % WIDE] = add(lanes[i % WIDE], exp(sub(logits[row, i], logits[row, at])))
        best[row] = at
        probability[row] = div(ONE, sum_wide_lanes(lanes, 0))
