"""The table of suites, in the order in which they run."""

from collections.abc import Iterable

from harness.suites import batch, batch_mtp, chunks, device, drafts, loans, pcie, pipeline, pool, ram, sampled, split, tier, window
from harness.suites.contract import Suite
from strata.errors import UsageError

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        batch.SUITE, split.SUITE, pipeline.SUITE, window.SUITE, chunks.SUITE, drafts.SUITE, sampled.SUITE, batch_mtp.SUITE,
        tier.SUITE, pcie.SUITE, loans.SUITE, pool.SUITE, ram.SUITE, device.SUITE,
    )
}


def suites_named(names: Iterable[str]) -> tuple[Suite, ...]:
    """Return the suites of the given names, in the table's order; without names all that this machine can run.

    Raises UsageError for an unknown one, and for one that cannot run here.
    """
    asked = tuple(names)
    for name in asked:
        if name not in SUITES:
            raise UsageError(f"suite={name}", "there is no such suite", f"use one of {', '.join(SUITES)}, or see strata-harness list")
        reason = SUITES[name].why_not()
        if reason is not None:
            raise UsageError(f"suite={name}", reason, "leave it out with --suite")
    return tuple(suite for suite in SUITES.values() if suite.name in asked or (not asked and suite.why_not() is None))
