"""The outputs that CI systems read: JUnit XML, GitHub annotations and step summary, an HTML page."""

import argparse
import os

from strata.errors import UsageError


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add the options of outputs."""
    group = parser.add_argument_group("outputs")
    group.add_argument("--junit-xml", metavar="FILE", help="write a JUnit XML file")
    group.add_argument("--github", action="store_true", help="print GitHub annotations, and a step summary where GITHUB_STEP_SUMMARY is set")
    group.add_argument("--html", metavar="FILE", help="write an HTML page with the matrix of cases")


def check_outputs(arguments: argparse.Namespace) -> None:
    """Raise UsageError now, rather than after the run, for a file that cannot be written."""
    for flag in ("json", "junit_xml", "html"):
        check_writable(flag.replace("_", "-"), getattr(arguments, flag, None))


def check_writable(flag: str, path: str | None) -> None:
    """Raise UsageError where a path (other than `-`) cannot be written."""
    folder = os.path.dirname(path or "") or "."
    if path and path != "-" and (os.path.isdir(path) or not os.access(folder, os.W_OK)):
        raise UsageError(f"{flag}={path}", "it cannot be written", "name a file in a folder that exists")
