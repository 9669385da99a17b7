"""What a check is: it tries a fault on a bench and finds something, or nothing.

A finding says by what a fault was convicted:

    comparison   two arms differ                      golden   the bits differ from those recorded without a fault
    vacuous      what was to be tested did not happen oracle   the figures are not those of the float64 reference
    error        a run could not end                  ledger   two arms' answers are equal, but not what operations gave

Does not know: faults.
"""

from collections.abc import Callable
from dataclasses import dataclass

from harness.faults.fault import Fault
from harness.faults.planting import Bench

COMPARISON, VACUOUS, ERROR, GOLDEN, ORACLE, LEDGER = "comparison", "vacuous", "error", "golden", "oracle", "ledger"
EVIDENCE = (COMPARISON, LEDGER, VACUOUS, GOLDEN, ORACLE, ERROR)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: `evidence` is empty where it found nothing."""

    evidence: str = ""
    detail: str = ""


CLEAN = Finding()


@dataclass(frozen=True, slots=True)
class Check:
    """A check; `compares_arms` tells whether it sets two arms of one engine against each other."""

    name: str
    compares_arms: bool
    run: Callable[[Bench, Fault], Finding]
