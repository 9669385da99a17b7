"""Calling `strata-harness` inside the test's process, on small workloads.

Does not know: commands.
"""

import contextlib
import io
import json
from pathlib import Path

from harness.cli.main import main
from harness.scope import PROMPTS
from tests.cli.calls import Outcome


def harness(*arguments: object) -> Outcome:
    """Run `strata-harness` with the arguments."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())


def refusal(*arguments: object) -> str:
    """Run `strata-harness`, check that it refuses with one line and exit code 2 before printing results, return the line."""
    outcome = harness(*arguments)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    what, _, rest = lines[0].removeprefix("strata-harness: error: ").partition(": ")
    why, _, remedy = rest.rpartition("; ")
    assert lines[0].startswith("strata-harness: error: ") and what and why and remedy, lines[0]
    return lines[0]


def prompts_file(folder: Path, prompts: list[list[int]] | None = None) -> Path:
    """Write a prompts file: the given ids, or the first tokens of three shipped prompts."""
    path = folder / "prompts.json"
    ids = prompts if prompts is not None else [entry["ids"][:6] for entry in json.loads(PROMPTS.read_text())[:3]]
    path.write_text(json.dumps(ids))
    return path
