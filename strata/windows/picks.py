"""What a row of logits says: the pick, the runner-up, the margin, and a hash of all its bits.

The hash folds every NaN to one value, as NaN bits are outside the contract.  A row that is not finite has no pick.
Does not know: requests, samplers' settings.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from strata.numerics.ranking import best_two

HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class LogitRow:
    """One row: `digest` of its bits (hex), the two best ids and their logits, whether all values are finite."""

    digest: str
    best: int
    second: int
    best_logit: float
    second_logit: float
    finite: bool

    @property
    def margin(self) -> float:
        """Logit difference between the best and the second-best id."""
        return self.best_logit - self.second_logit


def digest_of(values: np.ndarray) -> str:
    """Return the hex hash of an array's bits, NaN folded."""
    contiguous = np.ascontiguousarray(values)
    if contiguous.dtype.kind == "f" and np.isnan(contiguous).any():
        contiguous = np.where(np.isnan(contiguous), contiguous.dtype.type(np.nan), contiguous)
    return hashlib.blake2b(contiguous.tobytes(), digest_size=HASH_BYTES).hexdigest()


def read_row(logits: np.ndarray) -> LogitRow:
    """Read one row float32 [vocabulary]."""
    first, second, finite = best_two(logits)
    runner_up = second if second >= 0 else first
    return LogitRow(digest_of(logits), first, runner_up, float(logits[first]), float(logits[runner_up]), bool(finite))
