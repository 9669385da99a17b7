"""The command that repeats one case."""

import shlex

from harness.options import Options


def reproducing_command(options: Options, suite: str, case: str) -> str:
    """Return a line to paste into a shell."""
    return shlex.join(["strata-harness", "run", "--suite", suite, "--case", case, *options.arguments()])
