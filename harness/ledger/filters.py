"""Which part of a run a ledger records: so that fine levels cost little where they are not needed.

Does not know: records.
"""

from dataclasses import dataclass

import numpy as np

from strata.rows import Window


@dataclass(frozen=True, slots=True)
class Only:
    """Restrictions, each None for none: request numbers, positions first..last, layers, names of points.

    Requests are numbered as the ledger names them.
    """

    requests: frozenset[int] | None = None
    positions: tuple[int, int] | None = None
    layers: frozenset[int] | None = None
    points: frozenset[str] | None = None

    def rows(self, window: Window, requests: np.ndarray) -> np.ndarray | None:
        """Return which rows of a window are wanted, bool [rows]; None where all are.  requests int [rows]: the rows' requests."""
        chosen = None
        if self.requests is not None:
            chosen = np.isin(requests, list(self.requests))
        if self.positions is not None:
            first, last = self.positions
            inside = (window.positions >= first) & (window.positions <= last)
            chosen = inside if chosen is None else chosen & inside
        return None if chosen is None or chosen.all() else chosen

    def is_past(self, window: Window, requests: np.ndarray) -> bool:
        """Tell whether a window lies behind all that is wanted of the one request that is."""
        if self.requests is None or len(self.requests) != 1 or self.positions is None:
            return False
        (request,) = self.requests
        rows = requests == request
        return bool(rows.any()) and int(window.positions[rows].min()) > self.positions[1]
