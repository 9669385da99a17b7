"""`strata-harness env`: what a report should say about the machine."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `env`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Print the environment; returns 0."""
    from harness.environment import environment
    from harness.report.environment_report import print_environment

    print_environment(environment(), arguments.json)
    return 0
