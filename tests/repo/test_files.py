"""What the repository tracks: nothing large but the model, nothing that only makes sense on one machine."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repo.source import ROOT

LARGE_BYTES = 300_000
MODEL = "fixtures/"
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
ONE_MACHINE = re.compile(r"(?<![\w.~])/(root|work|home/\w+|Users/\w+)/|\.\./" + "shared")
"""Absolute paths into somebody's home, and the folder beside the checkout that readers do not have."""


def tracked() -> list[Path]:
    """Return the files that git tracks; skips where there is no checkout."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("this is no git checkout, so there is no list of tracked files")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def texts() -> list[tuple[str, str]]:
    """Return (path, content) of every tracked text file outside the model."""
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        content = path.read_bytes()
        if not name.startswith(MODEL) and b"\0" not in content and path != Path(__file__).resolve():
            found.append((name, content.decode("utf-8")))
    return found


def test_only_the_model_is_large():
    large = [path.relative_to(ROOT).as_posix() for path in tracked() if path.stat().st_size > LARGE_BYTES]
    assert [name for name in large if not name.startswith(MODEL)] == []


def test_nothing_is_left_unfinished_or_tied_to_one_machine():
    found = [
        f"{name}: {match[0]}" for name, text in texts() for pattern in (UNFINISHED, ONE_MACHINE) for match in pattern.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize("line", ["see /root/notes", "path=/home/ann/model", "cd '../" + "shared/x'"])
def test_a_path_of_one_machine_is_seen(line):
    assert ONE_MACHINE.search(line)


@pytest.mark.parametrize("line", ["https://example.org/root/x", "./work/x", "~/.cache/strata"])
def test_other_paths_are_not(line):
    assert not ONE_MACHINE.search(line)
