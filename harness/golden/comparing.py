"""Comparing two documents of the harness: golden files row by row, runs case by case.

Two golden files are compared by their items (label and prompt), rows and operations, whatever machines made them; two runs by
the verdict and the counts of each case.  What only one of them has is said.  Does not know: engines.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from harness.golden.document import FORMAT, Golden, read_golden
from harness.ledger.points import in_words
from strata.errors import UsageError

RUN_FORMAT = "strata-harness run 1"


@dataclass(frozen=True, slots=True)
class Compared:
    """Things compared and equal, and a line for each difference."""

    unit: str
    n_compared: int
    n_equal: int
    lines: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        return not self.lines


def compare_files(left: Path, right: Path) -> Compared:
    """Compare two files of one format; raises UsageError for others."""
    formats = [_format_of(path) for path in (left, right)]
    if formats[0] != formats[1]:
        raise UsageError(f"{left} and {right}", f"one is {formats[0]}, the other {formats[1]}", "give two files of one kind")
    if formats[0] == FORMAT:
        return compare_goldens(read_golden(left), read_golden(right))
    return compare_runs(json.loads(Path(left).read_text()), json.loads(Path(right).read_text()))


def _format_of(path: Path) -> str:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"file={path}", error.strerror or "it cannot be read", "check the path") from None
    except ValueError as error:
        raise UsageError(f"file={path}", f"it is not JSON ({error})", "give what record, or run --json, wrote") from None
    found = document.get("format") if isinstance(document, dict) else None
    if found not in (FORMAT, RUN_FORMAT):
        raise UsageError(f"file={path}", f"its format is {found}", "give what record, or run --json, wrote")
    return found


def compare_goldens(left: Golden, right: Golden) -> Compared:
    """Compare two golden records row by row, and name the first operation that differs."""
    lines = [
        f"{name}: {a} | {b}"
        for name, a, b in (("model", left.model, right.model), ("rounding", left.rounding, right.rounding),
                           ("K/V", left.kv, right.kv), ("rotary table", left.rotary, right.rotary))
        if a != b
    ]
    others = {(item.label, item.prompt): item for item in right.items}
    n_compared = n_equal = 0
    for item in left.items:
        other = others.pop((item.label, item.prompt), None)
        if other is None:
            lines.append(f"{item.label}: only on the left")
            continue
        pairs = [*zip(item.read, other.read, strict=False), *zip(item.written, other.written, strict=False)]
        equal = sum(a == b for a, b in pairs)
        n_compared, n_equal = n_compared + len(pairs), n_equal + equal
        if equal != len(pairs) or item.tokens != other.tokens:
            first = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
            lines.append(f"{item.label}: {len(pairs) - equal} of {len(pairs)} rows differ, first row {first}")
    lines += [f"{label}: only on the right" for label, _ in others]
    changed = next((at for at, value in left.operations.items() if at in right.operations and right.operations[at] != value), None)
    if changed is not None:
        lines.append(f"first operation that differs: {in_words(changed[1], changed[0])}")
    return Compared("rows", n_compared, n_equal, tuple(lines))


def compare_runs(left: dict, right: dict) -> Compared:
    """Compare two runs case by case: verdict, rows compared, rows equal."""
    cases = [{(suite["name"], case["name"]): case for suite in run["suites"] for case in suite["cases"]} for run in (left, right)]
    lines, n_equal = [], 0
    shared = [key for key in cases[0] if key in cases[1]]
    for key in shared:
        told = [f"{case[key]['verdict']}, {case[key]['n_rows_equal']} of {case[key]['n_rows']} rows equal" for case in cases]
        n_equal += told[0] == told[1]
        lines += [f"{' '.join(key)}: {told[0]} | {told[1]}"] if told[0] != told[1] else []
    for side, own, other in (("left", *cases), ("right", *reversed(cases))):
        lines += [f"{' '.join(key)}: only on the {side}" for key in own if key not in other]
    return Compared("cases", len(shared), n_equal, tuple(lines))
