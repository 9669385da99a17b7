"""One bench for the tests of faults, with the shipped model."""

from functools import cache

from harness.faults.planting import Bench
from tests.unit.harness.scopes import shipped


@cache
def bench() -> Bench:
    """The bench; outcomes without a fault are made once."""
    return Bench(shipped()[0])
