"""`strata-harness compare`: two golden files, or two runs, against each other."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `compare`."""
    parser.add_argument("left", metavar="A.json", help="a golden file, or what run --json wrote")
    parser.add_argument("right", metavar="B.json", help="another of the same kind, perhaps from another machine")


def execute(arguments: argparse.Namespace) -> int:
    """Compare; returns 0 when nothing differs, 1 when something does."""
    from pathlib import Path

    from harness.golden.comparing import compare_files
    from harness.report.console import results_console

    compared = compare_files(Path(arguments.left), Path(arguments.right))
    console = results_console()
    for line in compared.lines:
        console.print(line, markup=False)
    verdict = "[green]equal[/]" if compared.is_equal else "[red]differs[/]"
    console.print(f"{verdict}: {compared.n_equal:,} of {compared.n_compared:,} {compared.unit} equal")
    return 0 if compared.is_equal else 1
