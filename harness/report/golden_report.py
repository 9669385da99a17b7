"""Reports of golden records: what was recorded, what a check found."""

from collections.abc import Sequence
from dataclasses import asdict

from harness.environment import recorded_environment
from harness.golden.checking import WayResult
from harness.golden.document import Golden
from harness.options import Options
from harness.report.console import results_console
from rich.table import Table

FORMAT = "strata-harness check 1"
SHOWN = 4


def print_recorded(path: str, golden: Golden) -> None:
    """Print what a golden file holds."""
    console = results_console()
    console.print(f"{path}: {len(golden.items)} prompts, {golden.n_rows:,} logit rows, {len(golden.operations)} operations; {golden.rounding}, K/V {golden.kv}")


def print_check(results: Sequence[tuple[str, WayResult]]) -> None:
    """Print a table of ways, what changed, and one last line."""
    console = results_console()
    table = Table("golden file", "way", "verdict", box=None)
    for heading in ("rows", "equal", "seconds"):
        table.add_column(heading, justify="right")
    for file, result in results:
        verdict = "[green]exact[/]" if result.is_exact else "[red]differs[/]"
        table.add_row(file, result.way, verdict, f"{result.n_rows:,}", f"{result.n_equal:,}", f"{result.seconds:.1f}")
    console.print(table)
    for file, result in results:
        if not result.is_exact:
            console.print(f"{file}, {result.way}: the first operation that changed is [bold]{result.operation}[/] ({result.source})")
            for difference in result.differences[:SHOWN]:
                console.print(f"  {difference.label} row {difference.row}: {difference.detail}")
    n_rows, failing = sum(result.n_rows for _, result in results), sum(not result.is_exact for _, result in results)
    console.print(f"{'[red]differs[/]' if failing else '[green]exact[/]'}: {n_rows:,} golden rows compared, {failing} of {len(results)} ways differ")


def check_document(results: Sequence[tuple[str, WayResult]], options: Options) -> dict:
    """Return the results of a check as a document."""
    return {
        "format": FORMAT,
        "verdict": "exact" if all(result.is_exact for _, result in results) else "differs",
        "n_rows": sum(result.n_rows for _, result in results),
        "options": asdict(options),
        "environment": recorded_environment(),
        "ways": [{"file": file, **asdict(result)} for file, result in results],
    }
