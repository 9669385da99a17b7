"""The table of suites on stdout."""

from collections.abc import Iterable

from harness.report.console import results_console
from harness.suites.contract import Suite
from rich.table import Table


def print_suites(suites: Iterable[Suite]) -> None:
    """Print name and purpose of every suite."""
    table = Table("suite", "what must give equal bits", box=None)
    for suite in suites:
        table.add_row(suite.name, suite.purpose)
    results_console().print(table)
