"""Calling the command line inside the test's process, and what a refusal must look like.

Does not know: commands.
"""

import contextlib
import io
from dataclasses import dataclass

from strata.cli.main import main


@dataclass(frozen=True, slots=True)
class Outcome:
    """An exit code and what was written."""

    code: int
    out: str
    err: str


def strata(*arguments: object) -> Outcome:
    """Run `strata` with the arguments."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())


def refusal(*arguments: object) -> str:
    """Run `strata`, check that it refuses with one line and exit code 2 before printing anything, and return the line."""
    outcome = strata(*arguments)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    line = lines[0]
    assert line.startswith("strata: error: ")
    what, _, rest = line.removeprefix("strata: error: ").partition(": ")
    why, _, remedy = rest.rpartition("; ")
    assert what and why and remedy, line
    return line
