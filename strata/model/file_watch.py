"""Whether mapped files are still as long as they were: reading a mapped page behind a file's end kills the process.

A file that was cut short in place keeps its inode and loses length; one that was replaced (written aside and renamed) has another
inode, and the mapping of the old one stays valid.  A check costs one `stat` a file, about a microsecond; what is cut between a check
and the reading behind it is not seen.  Does not know: what the files hold.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from strata.errors import ModelFileError


class FileWatch:
    """The files as they are now; `require_whole` compares later."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._files = tuple((str(path), *_inode_and_size(str(path))) for path in paths)

    def require_whole(self) -> None:
        """Raise ModelFileError for a file that has become shorter; one that is gone or replaced is still mapped."""
        for path, inode, size in self._files:
            try:
                found_inode, found = _inode_and_size(path)
            except OSError:
                continue
            if found_inode == inode and found < size:
                raise ModelFileError(
                    path, f"it was cut from {size:,} to {found:,} bytes while it was in use", "restore the file and start again"
                )


def _inode_and_size(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_size
