"""Passes: both arms of a case run with ledgers, whole or as far as a filter needs.

Each engine that an arm opens gets a ledger of its own, with the requests named as the workload numbers them.  An arm whose
requests run alone runs only the one that the filter is about.  A planted fault goes into the right arm.  Scripted drafts
are made from the left arm's answers of the first pass, so that all passes run the same windows.  Does not know: searches.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.arms import Arm
from harness.faults.ulp import UlpFault, Where
from harness.ledger.filters import Only
from harness.ledger.join import Events, compare
from harness.ledger.ledger import Ledger
from harness.ledger.records import read_records
from harness.running import Outcome, Runner
from harness.suites.contract import Case
from harness.workload import Workload
from strata.batch.requests import Answer
from strata.errors import SeenEnough
from strata.model.model import Model
from strata.split.probes import Probe, Probes


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """What one pass gave; outcomes are None where the run was ended early."""

    level: int
    only: Only
    events: Events
    left: Outcome | None
    right: Outcome | None
    seconds: float


@dataclass(slots=True, eq=False)
class _Side:
    """The ledgers of one arm in one pass, in the order of its engines."""

    arm: Arm
    items: Sequence[int]
    level: int
    only: Only
    may_stop: bool
    fault: UlpFault | None = None
    ledgers: list[Ledger] = field(default_factory=list)

    def probe(self, arm: Arm) -> Probe:
        """Return the probe of the arm's next engine."""
        served = [self.items[len(self.ledgers)]] if arm.alone else arm.schedule.order or self.items
        ledger = Ledger(self.level, self.only, dict(enumerate(served)), self.may_stop)
        self.ledgers.append(ledger)
        return Probes([self.fault, ledger]) if self.fault else ledger


class Passes:
    """Runs a case's arms; `n_flips` counts what a planted fault did in the last pass."""

    def __init__(self, model: Model, case: Case, plant: Where | None = None) -> None:
        self.model, self.case, self.plant = model, case, plant
        self.n_flips = 0
        self._answers: tuple[Answer, ...] = ()

    def run(self, level: int, only: Only = Only()) -> Pass:
        """Run both arms once; the first pass must be a whole one."""
        started = time.perf_counter()
        is_whole = only.requests is None
        left, left_side = self._run(self.case.left, level, only, None)
        if is_whole:
            self._answers = left.answers
        fault = UlpFault(self.plant) if self.plant else None
        right, right_side = self._run(self.case.right, level, only, fault)
        self.n_flips = fault.n_flips if fault else 0
        events = compare(read_records(left_side.ledgers), read_records(right_side.ledgers))
        return Pass(level, only, events, left, right, time.perf_counter() - started)

    def _run(self, arm: Arm, level: int, only: Only, fault: UlpFault | None) -> tuple[Outcome | None, _Side]:
        items = range(len(self.case.workload.items))
        if arm.alone and only.requests is not None:
            items = sorted(only.requests)
        side = _Side(arm, items, level, only, only.requests is not None, fault)
        runner = Runner(self.model, side.probe)
        workload = Workload(tuple(self.case.workload.items[i] for i in items))
        try:
            return runner.run(arm, workload, [self._answers[i] for i in items] if self._answers else ()), side
        except SeenEnough:
            return None, side
