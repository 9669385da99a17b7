"""A progress bar on stderr while cases are judged, where stderr is a terminal."""

import sys
from collections.abc import Iterable, Iterator, Sequence

from harness.report.console import side_console
from harness.suites.contract import Case, Suite
from harness.verdicts import CaseResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def watched(results: Iterable[CaseResult], cases: Sequence[tuple[Suite, Case]]) -> Iterator[CaseResult]:
    """Yield the results as they come, with a bar that names the case being judged."""
    if not sys.stderr.isatty():
        yield from results
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=side_console(), transient=True) as progress:
        task = progress.add_task(_name(cases, 0), total=len(cases))
        for n, result in enumerate(results, 1):
            progress.update(task, advance=1, description=_name(cases, n))
            yield result


def _name(cases: Sequence[tuple[Suite, Case]], index: int) -> str:
    if index >= len(cases):
        return "done"
    suite, case = cases[index]
    return f"{suite.name} {case.name}"
