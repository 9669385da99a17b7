"""The table of suites, in the order in which they run."""

from collections.abc import Iterable

from harness.suites import batch, batch_mtp, chunks, drafts, pipeline, sampled, split, window
from harness.suites.contract import Suite
from strata.errors import UsageError

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        batch.SUITE, split.SUITE, pipeline.SUITE, window.SUITE, chunks.SUITE, drafts.SUITE, sampled.SUITE, batch_mtp.SUITE,
    )
}


def suites_named(names: Iterable[str]) -> tuple[Suite, ...]:
    """Return the suites of the given names (none: all), in the table's order; raises UsageError for an unknown one."""
    asked = tuple(names) or tuple(SUITES)
    for name in asked:
        if name not in SUITES:
            raise UsageError(f"suite={name}", "there is no such suite", f"use one of {', '.join(SUITES)}, or see strata-harness list")
    return tuple(suite for suite in SUITES.values() if suite.name in asked)
