"""Findings: results of any command in one shape, for the outputs that CI systems read.

A finding is one case: where it belongs, its verdict, what it says in plain words, and the command that repeats it.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from harness.golden.checking import WayResult
from harness.options import Options
from harness.report.difference_panel import request_lines
from harness.report.github import write_github
from harness.report.html import write_html
from harness.report.junit import write_junit
from harness.report.reproduce import reproducing_command
from harness.verdicts import DIFFERS, EXACT, SuiteResult


@dataclass(frozen=True, slots=True)
class Finding:
    """One case; `summary` is a line, `detail` more of them; `source` names the file at fault where it is known."""

    suite: str
    case: str
    verdict: str
    seconds: float
    n_rows: int
    summary: str = ""
    detail: str = ""
    command: str = ""
    source: str = ""


def from_run(results: Sequence[SuiteResult], options: Options) -> tuple[Finding, ...]:
    """Return the findings of a run of suites."""
    return tuple(_of_case(suite, case, options) for suite in results for case in suite.cases)


def from_check(results: Sequence[tuple[str, WayResult]], options: Options) -> tuple[Finding, ...]:
    """Return the findings of a check of golden files."""
    return tuple(_of_way(file, result, options) for file, result in results)


def write_outputs(arguments: argparse.Namespace, title: str, findings: Sequence[Finding]) -> None:
    """Write the outputs that were asked for."""
    if arguments.junit_xml:
        write_junit(arguments.junit_xml, title, findings)
    if arguments.html:
        write_html(arguments.html, title, findings)
    if arguments.github:
        write_github(title, findings)


def _of_case(suite: SuiteResult, case, options: Options) -> Finding:
    comparison = case.comparison
    lines = [line for d in comparison.differences for line in request_lines(d)] if comparison else []
    command = "" if case.verdict == EXACT else reproducing_command(options, suite.suite.name, case.case.name)
    n_rows = comparison.n_rows if comparison else 0
    return Finding(suite.suite.name, case.case.name, case.verdict, case.seconds, n_rows, case.reason, "\n".join(lines), command)


def _of_way(file: str, result: WayResult, options: Options) -> Finding:
    if result.is_exact:
        return Finding(file, result.way, EXACT, result.seconds, result.n_rows)
    summary = f"{result.n_rows - result.n_equal} of {result.n_rows} golden rows changed; the first operation that changed: {result.operation}"
    lines = [f"{d.label} row {d.row}: {d.detail}" for d in result.differences]
    command = " ".join(["strata-harness", "check", *options.arguments()])
    return Finding(file, result.way, DIFFERS, result.seconds, result.n_rows, summary, "\n".join(lines), command, result.source)
