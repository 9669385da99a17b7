"""The one place where failures become words and exit codes.

Expected ones (StrataError) are one line on stderr.  Unexpected ones are a report that can be pasted into an issue as it is.
Exit codes: 2 for both, 130 for an interrupt.  Does not know: commands.
"""

import os
import shlex
import sys
import traceback
from collections.abc import Callable

from strata.errors import StrataError

CANNOT = 2
INTERRUPTED = 130


def guarded(program: str, action: Callable[[], int]) -> int:
    """Return the action's exit code, or that of the failure that ended it, told on stderr."""
    try:
        return action()
    except StrataError as error:
        print(f"{program}: error: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return error.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else CANNOT
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CANNOT
    except Exception as error:
        print(report_of(program, error), file=sys.stderr)
        return CANNOT


def report_of(program: str, error: Exception) -> str:
    """Return what somebody needs who was not there: command, versions, traceback."""
    from strata.cli.versions import versions

    lines = [
        f"{program}: this is a fault of the program, not of your input. Please report everything between the lines.",
        "-" * 80,
        f"command: {shlex.join([program, *sys.argv[1:]])}",
        "versions: " + ", ".join(f"{name} {version}" for name, version in versions().items()),
        "".join(traceback.format_exception(error)).rstrip(),
        "-" * 80,
    ]
    return "\n".join(lines)
