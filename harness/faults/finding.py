"""Findings: what a check found of a fault, and by what evidence.

    comparison   two arms differ                      golden   the bits differ from those recorded without a fault
    vacuous      what was to be tested did not happen oracle   the figures are not those of the float64 reference
    error        a run could not end                  ledger   two arms' answers are equal, but not what operations gave

Does not know: faults, checks.
"""

from dataclasses import dataclass

COMPARISON, VACUOUS, ERROR, GOLDEN, ORACLE, LEDGER = "comparison", "vacuous", "error", "golden", "oracle", "ledger"
EVIDENCE = (COMPARISON, LEDGER, VACUOUS, GOLDEN, ORACLE, ERROR)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: `evidence` is empty where it found nothing."""

    evidence: str = ""
    detail: str = ""


CLEAN = Finding()
