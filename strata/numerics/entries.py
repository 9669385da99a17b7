"""Files of compiled kernels: where they lie, and how one is written whole, read checked and forgotten.

The base folder is STRATA_CACHE_DIR, else NUMBA_CACHE_DIR, else `strata` in the user's cache folder.  A file is the SHA-256
of its content, then the content; it is written aside and renamed, so that other processes see it whole or not at all, and a
damaged one counts as absent.  Does not know: keys, what an entry holds.
"""

import contextlib
import hashlib
import logging
import os
import tempfile
from pathlib import Path

from strata.numerics.sources import PACKAGE

LOG = logging.getLogger(__name__)
LIMIT_BYTES = 1 << 30
"""Bytes of a folder of entries at most: what was used longest ago goes."""


def base_folder() -> Path:
    """Return the folder of everything that may be made again; it need not exist."""
    for variable in ("STRATA_CACHE_DIR", "NUMBA_CACHE_DIR"):
        if os.environ.get(variable):
            return Path(os.environ[variable])
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / PACKAGE


def write_entry(path: Path, content: bytes) -> None:
    """Write a file that other processes see whole or not at all: its SHA-256, then the content."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, aside = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def read_entry(path: Path, mark: bool = True) -> bytes | None:
    """Return the content of an entry, marked as used unless `mark` is False; None where it is missing or damaged."""
    try:
        whole = path.read_bytes()
        if mark:
            os.utime(path)
    except FileNotFoundError:
        return None
    if whole[:32] != hashlib.sha256(whole[32:]).digest():
        LOG.warning("compiled kernel %s is damaged and is compiled again", path)
        return None
    return whole[32:]


def forget_oldest(folder: Path, limit_bytes: int) -> None:
    """Remove the files used longest ago until the folder holds at most `limit_bytes`."""
    found = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # another process may remove it meanwhile
            found.append((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path))
    excess = sum(size for _, size, _ in found) - limit_bytes
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        Path(path).unlink(missing_ok=True)
        excess -= size
