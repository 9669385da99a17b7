"""The results of a run as one JSON document.

Both arms of a case stand with their settings as asked for and in force, and the difference of the latter.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from harness.arms import Arm
from harness.environment import recorded_environment
from harness.options import Options
from harness.report.reproduce import reproducing_command
from harness.running import Outcome
from harness.verdicts import CaseResult, SuiteResult, exit_code, worst
from strata.errors import UsageError

FORMAT = "strata-harness run 1"


def run_document(results: Sequence[SuiteResult], options: Options) -> dict:
    """Return the document of a run."""
    return {
        "format": FORMAT,
        "verdict": worst(result.verdict for result in results),
        "exit_code": exit_code(results),
        "n_tokens": sum(result.n_tokens for result in results),
        "n_rows": sum(result.n_rows for result in results),
        "options": asdict(options),
        "environment": recorded_environment(),
        "suites": [_suite(result, options) for result in results],
    }


def write_json(path: str, document: dict) -> None:
    """Write a document to a file, or to stdout for `-`; raises UsageError where that fails."""
    text = json.dumps(document, indent=1, allow_nan=False, default=str)
    if path == "-":
        sys.stdout.write(text + "\n")
        return
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"json={path}", error.strerror or "it cannot be written", "name another file") from None


def _suite(result: SuiteResult, options: Options) -> dict:
    return {
        "name": result.suite.name,
        "purpose": result.suite.purpose,
        "verdict": result.verdict,
        "n_tokens": result.n_tokens,
        "n_rows": result.n_rows,
        "counters": result.counters,
        "seconds": round(result.seconds, 3),
        "cases": [_case(case, options) for case in result.cases],
    }


def _case(result: CaseResult, options: Options) -> dict:
    comparison = result.comparison
    return {
        "name": result.case.name,
        "verdict": result.verdict,
        "reason": result.reason,
        "n_tokens": comparison.n_tokens if comparison else 0,
        "n_rows": comparison.n_rows if comparison else 0,
        "n_rows_equal": comparison.n_rows_equal if comparison else 0,
        "counters": result.counters,
        "seconds": round(result.seconds, 3),
        "left": _arm(result.case.left, result.left),
        "right": _arm(result.case.right, result.right),
        "in_force": [asdict(item) for item in result.in_force],
        "differences": [_difference(item) for item in comparison.differences] if comparison else [],
        "command": reproducing_command(options, result.suite, result.case.name),
    }


def _arm(arm: Arm, outcome: Outcome | None) -> dict:
    return {
        "name": arm.name,
        "requested": arm.requested(),
        "effective": dict(outcome.effective) if outcome else None,
        "notes": list(outcome.notes) if outcome else [],
        "counters": dict(outcome.counters) if outcome else {},
    }


def _difference(difference) -> dict:
    document = asdict(difference)
    for name in ("row", "token"):
        mismatch = getattr(difference, name)
        for side in ("left", "right") if mismatch else ():
            document[name][side]["margin"] = getattr(mismatch, side).margin
    return document
