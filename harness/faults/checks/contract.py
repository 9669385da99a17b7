"""What a check is: it tries a fault on a bench and finds something, or nothing.

Does not know: faults.
"""

from collections.abc import Callable
from dataclasses import dataclass

from harness.faults.fault import Fault
from harness.faults.finding import Finding
from harness.faults.planting import Bench


@dataclass(frozen=True, slots=True)
class Check:
    """A check; `compares_arms` tells whether it sets two arms of one engine against each other."""

    name: str
    compares_arms: bool
    run: Callable[[Bench, Fault], Finding]
