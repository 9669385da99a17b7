"""Consoles: results on stdout, everything else on stderr.

Colour obeys NO_COLOR and is off without a terminal.  Without a terminal lines are as wide as they need to be, so that a log
can be searched.
"""

import sys

from rich.console import Console

WIDE = 160
"""Columns where there is no terminal to ask."""


def results_console() -> Console:
    """Return a console on stdout."""
    return _console(sys.stdout)


def side_console() -> Console:
    """Return a console on stderr."""
    return _console(sys.stderr)


def _console(stream) -> Console:
    return Console(file=stream, width=None if stream.isatty() else WIDE, highlight=False, soft_wrap=False)
