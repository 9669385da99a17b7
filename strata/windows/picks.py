"""What a row of logits says: the pick, the runner-up, the margin, and a hash of all its bits.

The hash is `strata.numerics.hashing`'s, so that a card can compute it too.  A row that is not finite has no pick.
Does not know: requests, samplers' settings.
"""

from dataclasses import dataclass

import numpy as np

from strata.numerics.hashing import hex_of, row_hashes
from strata.numerics.ranking import best_two


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


def read_row(logits: np.ndarray) -> LogitRow:
    """Read one row float32 [vocabulary]."""
    first, second, finite = best_two(logits)
    runner_up = second if second >= 0 else first
    return LogitRow(hex_of(row_hashes(logits[None, :])[0]), first, runner_up, float(logits[first]), float(logits[runner_up]), bool(finite))
