"""Where a command's JSON goes: to stdout, or to a file."""

import json
from pathlib import Path

from strata.errors import UsageError

STDOUT = "-"


def emit_measured(target: str, found: dict) -> None:
    """Emit what was measured behind the environment that it was measured in; raises as `emit`."""
    from strata.cli.env import recorded

    emit(target, {"environment": recorded()} | found)


def emit(target: str, found: object) -> None:
    """Print an object as JSON, or write it to a file; raises UsageError where that cannot be written."""
    text = json.dumps(found, indent=1)
    if target == STDOUT:
        print(text)
        return
    try:
        Path(target).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"json={target}", error.strerror or "it cannot be written", "name a file that can be") from error
