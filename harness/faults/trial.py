"""Trials: one fault against its checks, until one convicts it.

Its own checks come first, cheapest first; a fault that they let pass meets all other small ones, then its own suite cases
on the workload of `strata-harness run`.  A fault that reaches some rows or one arm is convicted only by checks that set
arms against each other.  A check that takes longer than `PATIENCE_SECONDS` is ended: a run that hangs is an error.
Does not know: reports.
"""

import logging
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from harness.faults.checks.contract import Check
from harness.faults.checks.table import all_checks, wide_checks
from harness.faults.fault import ALL, CONTROL, Fault
from harness.faults.finding import CLEAN, ERROR, VACUOUS, Finding
from harness.faults.planting import Bench
from strata.errors import StrataError, UsageError

PATIENCE_SECONDS = 300
"""Long: a fault may make kernels compile that nobody needed before."""
OWN, OTHER, WIDE = "own", "other", "wide"
ALL_RINGS = 3


class _Late(BaseException):
    """A check took too long; not an Exception, so that nobody on the way takes it for the fault's own."""


class UntrustedCheck(StrataError):
    """A check that convicts an engine without a fault: nothing that it says of faults counts."""

    def __init__(self, check: str, finding: Finding) -> None:
        super().__init__(
            f"check {check}", f"it finds something where no fault is: {finding.detail}", "make the suites pass first: strata-harness run"
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """How a fault fared: `ring` says which checks convicted it (its own, others, wide ones); empty for a survivor."""

    fault: Fault
    check: str
    finding: Finding
    ring: str
    n_checks: int
    seconds: float

    @property
    def is_killed(self) -> bool:
        return bool(self.finding.evidence)

    @property
    def is_as_expected(self) -> bool:
        """Killed where it can be seen, surviving where it cannot."""
        return self.is_killed != bool(self.fault.survives or self.fault is CONTROL)


def try_fault(fault: Fault, bench: Bench, most_rings: int = ALL_RINGS) -> Trial:
    """Try a fault; `most_rings` 1: its own checks only."""
    started, count = time.perf_counter(), 0
    for ring, check in _in_order(fault, bench, most_rings):
        count += 1
        finding = _tried(check, bench, fault)
        if finding.evidence:
            return Trial(fault, check.name, finding, ring, count, time.perf_counter() - started)
    return Trial(fault, "", Finding(), "", count, time.perf_counter() - started)


def _in_order(fault: Fault, bench: Bench, most_rings: int) -> Iterator[tuple[str, Check]]:
    known = all_checks(bench)
    unknown = [name for name in fault.seen_by if name not in known]
    if unknown:
        raise UsageError(f"fault={fault.name}", f"there is no check {unknown[0]}", "correct the catalogue")
    for name in fault.seen_by:
        yield OWN, known[name]
    if most_rings >= 2 or fault is CONTROL:
        yield from ((OTHER, check) for check in _allowed(fault, known.values()) if check.name not in fault.seen_by)
    if most_rings >= 3 and fault is not CONTROL:
        yield from ((WIDE, check) for check in wide_checks(bench, fault.seen_by))


def _allowed(fault: Fault, checks: Iterable[Check]) -> list[Check]:
    return [check for check in checks if check.compares_arms or fault.reach == ALL or fault is CONTROL]


def _tried(check: Check, bench: Bench, fault: Fault) -> Finding:
    """Try a fault on a check that has let the control pass; the first time also compiles what the check needs."""
    if check.name not in bench.control:
        with quiet():
            bench.control[check.name] = check.run(bench, bench.without_fault)
    verdict = bench.control[check.name]
    if verdict.evidence == VACUOUS and check.name not in fault.seen_by:
        return CLEAN  # its workload is too small for it: it has nothing to say
    if verdict.evidence and fault is not CONTROL:
        raise UntrustedCheck(check.name, verdict)
    if fault is CONTROL:
        return verdict
    try:
        with quiet(), _at_most(PATIENCE_SECONDS):
            return check.run(bench, fault)
    except _Late:
        return Finding(ERROR, f"it did not end within {PATIENCE_SECONDS} s")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what faults make the engine say out of the log."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can be woken
        return

    def late(*_: object) -> None:
        raise _Late()

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
