"""Median, least and most of repeated measurements."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Spread:
    """Of the same quantity over all rounds, in its own unit."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """Return the spread of at least one value."""
        return Spread(median(values), min(values), max(values))
