"""The two commands that do everything on a fresh machine: install into `.venv`, then run.

    python3 -m harness.fresh run [arguments of `strata-harness run`]
    python3 -m harness.fresh test [--with EXTRA] [arguments of pytest]

Imports the standard library only, and nothing newer than Python 3.6, so that an old interpreter gets a sentence and not a
traceback.  An installation is skipped while a stamp in `.venv` says that these extras were installed from the present
setup.cfg and pyproject.toml.  Tests are shared by two processes where two cores may be used and no card is there (tests on a
card measure its memory); pytest's own `-n 0` after them runs all in one.  Does not know: what is installed, what is run.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
OLDEST = (3, 11)
CARDS = Path("/dev/nvidiactl")
"""There where NVIDIA cards can be opened."""
SHARED_BY_TWO = ["-n", "2", "--dist", "worksteal"]
"""Each process takes half of the tests in order, files mostly whole, and then what the other has not come to."""
CANNOT = 2
"""Exit code where nothing could be judged."""
COMMANDS = ("run", "test")
USAGE = "usage: python3 -m harness.fresh run|test [--with EXTRA] [arguments]"


class CannotInstall(Exception):
    """Something outside the project is missing; the text says what, and what to do."""


def main(argv):
    """Install what the command needs and become it; returns an exit code only where that fails."""
    if not argv or argv[0] not in COMMANDS:
        print(USAGE, file=sys.stderr)
        return CANNOT
    command, arguments = argv[0], argv[1:]
    try:
        extras, arguments = _extras(command, arguments)
        _check_python()
        _install(extras)
    except CannotInstall as failure:
        print(f"harness.fresh: error: {failure}", file=sys.stderr)
        return CANNOT
    except KeyboardInterrupt:
        return 130
    os.chdir(str(ROOT))
    if command == "run":
        return _become([str(VENV / "bin" / "strata-harness"), "run"] + arguments)
    return _become([str(VENV / "bin" / "python"), "-m", "pytest"] + _sharing() + arguments)


def _extras(command, arguments):
    """Return (extras to install, arguments without `--with EXTRA`)."""
    extras = ["test"] if command == "test" else []
    if arguments[:1] == ["--with"]:
        if len(arguments) < 2:
            raise CannotInstall(USAGE)
        return extras + [arguments[1]], arguments[2:]
    return extras, arguments


def _sharing():
    """Return pytest's arguments that say how many processes share the tests."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [] if cores < 2 or CARDS.exists() else SHARED_BY_TWO


def _check_python():
    if sys.version_info[:2] >= OLDEST:
        return
    have, need = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST))
    newer = [name for name in (f"python3.{minor}" for minor in range(14, OLDEST[1] - 1, -1)) if shutil.which(name)]
    remedy = f"use {newer[0]} -m harness.fresh" if newer else f"install Python {need} or newer"
    raise CannotInstall(f"python={have} is too old, {need} or newer is needed; {remedy}")


def _install(extras):
    """Make `.venv` where it is missing or of another Python, and install the project with the extras not yet there."""
    if _read_stamp("python") != _python_key() or not (VENV / "bin" / "python").exists():
        _say(f"making {VENV} with Python {sys.version.split()[0]}")
        _call([sys.executable, "-m", "venv", "--clear", str(VENV)], "install Python's venv module (Debian, Ubuntu: apt install python3-venv)")
        _write_stamp("python", _python_key())
    wanted = [extra for extra in extras or [""] if _read_stamp(extra) != _project_key()]
    if not wanted:
        return
    names = [extra for extra in wanted if extra]
    project = str(ROOT) + (f"[{','.join(names)}]" if names else "")
    _say(f"installing {project} (some minutes the first time)")
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--editable", project]
    _call(pip, "look at pip's message above: a package index must be reachable")
    for extra in set(wanted) | {""}:
        _write_stamp(extra, _project_key())


def _read_stamp(name):
    path = _stamp_path(name)
    return path.read_text() if path.exists() else ""


def _write_stamp(name, key):
    _stamp_path(name).write_text(key)


def _stamp_path(name):
    return VENV / f"stamp-{name or 'project'}"


def _python_key():
    return f"{sys.version} {sys.base_prefix}"


def _project_key():
    content = b"".join((ROOT / name).read_bytes() for name in ("setup.cfg", "pyproject.toml"))
    return hashlib.sha256(content + str(ROOT).encode()).hexdigest()


def _call(command, remedy):
    code = subprocess.call(command)
    if code:
        raise CannotInstall(f"{' '.join(command)} ended with exit code {code}; {remedy}")


def _become(command):
    _say(" ".join(command))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)


def _say(text):
    print(f"harness.fresh: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
