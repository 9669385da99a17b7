"""Checks that compare what every operation of both arms gave: level-2 ledgers, joined.

A coding or a choice may swallow a unit in the last place, so that all answers are equal and the operation is wrong all the
same; the ledgers show it.  State must also lie as it was left, which one arm alone can break.  Does not know: faults.
"""

from harness.arms import Arm
from harness.faults.checks.contract import Check
from harness.faults.scopes import DEEP, TINY
from harness.faults.fault import CONTROL, ONE, Fault
from harness.faults.finding import CLEAN, ERROR, LEDGER, Finding
from harness.faults.planting import Bench
from harness.ledger.join import Events, compare
from harness.ledger.ledger import Ledger
from harness.ledger.points import in_words
from harness.ledger.records import Records, read_records
from harness.suites.contract import Case
from harness.suites.table import SUITES
from harness.workload import Workload

LEVEL = 2
NAMED = (
    (TINY, "batch", "slots-2"),
    (TINY, "window", "width-4"),
    (TINY, "split", "2-stages-6"),
    (TINY, "batch", "int8-4"),
    (DEEP, "batch", "slots-2"),
    (DEEP, "window", "width-4"),
)
MOST_ITEMS = 2
"""Requests of a case that are compared: ledgers are large."""


def ledger_checks(bench: Bench) -> dict[str, Check]:
    """Return the checks by name."""
    found = {}
    for scope, suite, name in NAMED:
        case = next(case for case in SUITES[suite].cases(bench.scopes[scope]) if case.name == name)
        full = f"ledger {'' if scope == TINY else f'{scope} '}{suite}/{name}"
        found[full] = Check(full, True, _runner(case))
    return found


def _runner(case: Case):
    work = Workload(case.workload.items[:MOST_ITEMS])

    def run(bench: Bench, fault: Fault) -> Finding:
        try:
            left, answers = _recorded(bench, CONTROL if fault.reach == ONE else fault, case.left, work, ())
            right, _ = _recorded(bench, fault, case.right, work, answers)
        except Exception as error:  # whatever a fault does is evidence
            return Finding(ERROR, f"{type(error).__name__}: {error}")
        events = compare(left, right)
        return Finding(LEDGER, _first(events)) if len(events) else CLEAN

    return run


def _recorded(bench: Bench, fault: Fault, arm: Arm, work: Workload, reference) -> tuple[Records, tuple]:
    ledgers: list[Ledger] = []

    def probe_of(arm: Arm) -> Ledger:
        served = [len(ledgers)] if arm.alone else arm.schedule.order or range(len(work.items))
        ledgers.append(Ledger(LEVEL, requests=dict(enumerate(served))))
        return ledgers[-1]

    outcome = bench.runner(fault, probe_of=probe_of).run(arm, work, reference)
    return read_records(ledgers), outcome.answers


def _first(events: Events) -> str:
    records = events.left if events.side[0] == "left" else events.right
    b = int(events.b[0])
    point = records.names[records.point[b]]
    return f"{len(events)} records differ, first: {in_words(point, int(records.layer[b]))}, position {int(events.position[0])}"
