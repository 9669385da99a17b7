"""Ranking by one integer key: the best and second-best of a row, ties to the lower index.

The key orders floats with NaN lowest and -0 equal to +0.  Does not know: logits, samplers.
"""

import numpy as np

from strata.numerics.cpu import bits, kernel
from strata.numerics.functions import INFINITY_BITS, SIGN_MASK
from strata.numerics.on_cpu import key


@kernel
def best_two(values):
    """Return (index of the largest, index of the second largest, whether all are finite) of float32 values [n], n >= 1.

    The second is -1 where n is 1.
    """
    first, second, finite = -1, -1, True
    first_key = second_key = np.int32(0)
    for i in range(values.shape[0]):
        k = key(values[i])
        finite &= (bits(values[i]) & SIGN_MASK) < INFINITY_BITS
        if first < 0 or k > first_key:
            first, second, first_key, second_key = i, first, k, first_key
        elif second < 0 or k > second_key:
            second, second_key = i, k
    return first, second, finite
