"""The table of checks, by name, cheapest kinds first.

Does not know: faults.
"""

from collections.abc import Iterator, Sequence
from functools import cache

from harness.faults.checks.cases import case_checks, wide_check
from harness.faults.checks.contained import contained_checks
from harness.faults.checks.contract import Check
from harness.faults.checks.golden import golden_checks
from harness.faults.checks.ledgers import ledger_checks
from harness.faults.checks.observed import observed_checks
from harness.faults.planting import Bench


@cache
def all_checks(bench: Bench) -> dict[str, Check]:
    """Return every check of the small workloads."""
    return {**case_checks(bench), **contained_checks(bench), **observed_checks(bench), **ledger_checks(bench), **golden_checks()}


def wide_checks(bench: Bench, names: Sequence[str]) -> Iterator[Check]:
    """Yield the named suite cases on the workload of `strata-harness run`."""
    for name in names:
        check = wide_check(bench, name)
        if check is not None:
            yield check
