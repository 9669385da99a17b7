"""`strata-harness list`: the suites and their purposes."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `list`: none."""


def execute(arguments: argparse.Namespace) -> int:
    """Print the table of suites; returns 0."""
    from harness.report.suite_list import print_suites
    from harness.suites.table import SUITES

    print_suites(SUITES.values())
    return 0
