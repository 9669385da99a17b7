"""The oracle's only comparator: one error measure and the few bounds that tests of the oracle may use.

Does not know: what is compared.
"""

import numpy as np

STORED_AS_FLOAT32 = 1e-6
"""Bound against figures that were stored in float32 (they are good to 6e-8)."""

SAME_STEPS = 1e-12
"""Bound between two float64 computations of the same steps in another order of additions."""

FILE_EPSILON = 1e-7
"""Bound where one side took the norms' epsilon as 1e-6 and the other as the file's float32 value of it."""

VISIBLE = 1e-4
"""A wrong step must move a result by more than this: 100 times what the reference check allows."""


def relative_error(actual, expected) -> float:
    """Norm of the difference over the norm of `expected`; shapes must agree."""
    actual, expected = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if actual.shape != expected.shape:
        raise ValueError(f"shape={actual.shape}: expected {expected.shape}; compare arrays of one shape")
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))
