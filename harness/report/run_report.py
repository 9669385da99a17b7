"""The report of a run on stdout: a table of suites, a panel for each case that is not exact, and one last line."""

from collections.abc import Sequence

from harness.options import Options
from harness.report.console import results_console, side_console
from harness.report.difference_panel import case_panel
from harness.verdicts import EXACT, SuiteResult, worst
from rich.table import Table

COLOURS = {"exact": "green", "differs": "red", "vacuous": "yellow", "error": "magenta"}
MEANINGS = {
    "exact": "every token and every logit row compared is equal",
    "differs": "something is not equal",
    "vacuous": "what was to be tested did not happen: nothing is proven",
    "error": "a case could not run to its end",
}
SHOWN_CASES = 6
"""Panels at most; the table and the JSON have the rest."""


def print_run(results: Sequence[SuiteResult], options: Options) -> None:
    """Print the results of a run."""
    console = results_console()
    failing = [case for result in results for case in result.cases if case.verdict != EXACT]
    for case in failing[:SHOWN_CASES]:
        console.print(case_panel(case, options))
    if len(failing) > SHOWN_CASES:
        console.print(f"{len(failing) - SHOWN_CASES} more cases are not exact: see --json")
    console.print(suite_table(results))
    console.print(last_line(results))


def print_notes(results: Sequence[SuiteResult]) -> None:
    """Print, once each and on stderr, what the engine ran otherwise than asked."""
    outcomes = [side for result in results for case in result.cases for side in (case.left, case.right) if side]
    for note in dict.fromkeys(note for outcome in outcomes for note in outcome.notes):
        side_console().print(f"note: {note}", markup=False)


def suite_table(results: Sequence[SuiteResult]) -> Table:
    """Return the table: one line per suite."""
    table = Table("suite", "verdict", box=None)
    for heading in ("cases", "tokens", "logit rows", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("proof of engagement")
    for result in results:
        verdict = result.verdict
        counters = ", ".join(f"{name} {count:,}" for name, count in result.counters.items())
        figures = (f"{len(result.cases)}", f"{result.n_tokens:,}", f"{result.n_rows:,}", f"{result.seconds:.1f}")
        table.add_row(result.suite.name, f"[{COLOURS[verdict]}]{verdict}[/]", *figures, counters)
    return table


def last_line(results: Sequence[SuiteResult]) -> str:
    """Return the verdict of the run with its totals."""
    verdict = worst(result.verdict for result in results)
    n_cases, n_tokens, n_rows = (sum(values) for values in zip(*((len(r.cases), r.n_tokens, r.n_rows) for r in results), strict=True))
    seconds = sum(result.seconds for result in results)
    plural = "case" if n_cases == 1 else "cases"
    n_controls = sum(case.case.is_control and case.verdict == EXACT for result in results for case in result.cases)
    controls = f"; {n_controls} of the cases are controls and differ, as they must" if n_controls else ""
    return (
        f"[{COLOURS[verdict]}]{verdict}[/]: {MEANINGS[verdict]}{controls}; "
        f"{n_cases} {plural}, {n_tokens:,} tokens, {n_rows:,} logit rows compared in {seconds:.1f} s"
    )
