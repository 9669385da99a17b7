"""Keeping pages in RAM: `mlock`, `munlock` and `madvise` of the C library, memory on huge pages, and how much memory there is.

Nothing here raises for what a machine does not allow: a lock that was refused is a result with the reason, because whoever
asked goes on without it and says so.  A card's driver locks pages by itself (`strata.cuda.card.page_locks`) and needs nothing of this.
Does not know: what lies in the pages.
"""

import mmap
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

PAGE_BYTES = mmap.PAGESIZE
HUGE_PAGE_BYTES = 2 << 20
WILL_NEED = 3
"""MADV_WILLNEED on Linux, macOS and the BSDs."""
MEMORY_FIGURES = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Locked:
    """Bytes that were locked (whole pages), and None or the one-line reason why it was not all that was asked for."""

    n_bytes: int
    refusal: str | None


@cache
def _c_library():
    """Return (ffi, library), or one line that says why there is no C library to ask."""
    try:
        import cffi
    except ImportError:
        return "the Python package cffi is missing, without which mlock is not called"
    try:
        ffi = cffi.FFI()
        ffi.cdef("int mlock(const void *, size_t); int munlock(const void *, size_t); int madvise(void *, size_t, int);")
        library = ffi.dlopen(None)
        library.mlock, library.munlock, library.madvise  # noqa: B018  (a missing symbol shows here)
    except (OSError, AttributeError) as error:
        return f"this system's C library has no mlock ({error})"
    return ffi, library


def _whole_pages(array: np.ndarray, n_bytes: int) -> tuple[int, int]:
    """Return address and length of the pages that hold the first n_bytes of an array."""
    start = array.ctypes.data
    first = start // PAGE_BYTES * PAGE_BYTES
    return first, -(-(start + n_bytes - first) // PAGE_BYTES) * PAGE_BYTES


def on_own_pages(shape: tuple[int, ...]) -> np.ndarray:
    """Return memory uint8 of a shape, contents undefined, that begins a page and shares none with others: it can be locked by itself.

    What holds a huge page begins one, and the system is asked for huge pages: reading then meets few page boundaries.
    """
    size = int(np.prod(shape))
    if size < HUGE_PAGE_BYTES:
        return _first_page(np.empty(_rounded(size, PAGE_BYTES) + PAGE_BYTES, np.uint8), PAGE_BYTES, size).reshape(shape)
    region = mmap.mmap(-1, _rounded(size, HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES)
    with suppress(AttributeError, OSError):
        region.madvise(mmap.MADV_HUGEPAGE)
    return _first_page(np.frombuffer(region, np.uint8), HUGE_PAGE_BYTES, size).reshape(shape)


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _first_page(room: np.ndarray, page_bytes: int, size: int) -> np.ndarray:
    first = -room.ctypes.data % page_bytes
    return room[first : first + size]


def lock(array: np.ndarray, n_bytes: int | None = None) -> Locked:
    """Lock the pages of an array's first n_bytes (None: all) into RAM, as many as the machine allows, from the start on."""
    wanted = array.nbytes if n_bytes is None else min(n_bytes, array.nbytes)
    if wanted == 0:
        return Locked(0, None)
    found = _c_library()
    if isinstance(found, str):
        return Locked(0, found)
    ffi, library = found
    first, length = _whole_pages(array, wanted)
    if library.mlock(ffi.cast("void *", first), length) == 0:
        return Locked(length, None)
    return Locked(0, _reason(ffi.errno, length))


def _reason(number: int, n_bytes: int) -> str:
    limit = _lock_limit()
    allowed = "" if limit is None else f" (this user may lock {limit:,} bytes: ulimit -l)"
    return f"locking {n_bytes:,} bytes was refused: {os.strerror(number)}{allowed}"


def _lock_limit() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def unlock(array: np.ndarray) -> None:
    """Let the pages of an array go; what was not locked stays as it is."""
    found = _c_library()
    if not isinstance(found, str) and array.nbytes:
        first, length = _whole_pages(array, array.nbytes)
        found[1].munlock(found[0].cast("void *", first), length)


def read_ahead(array: np.ndarray) -> bool:
    """Ask the system to read a mapped array ahead; return whether it took the advice."""
    found = _c_library()
    if isinstance(found, str) or not array.nbytes:
        return False
    first, length = _whole_pages(array, array.nbytes)
    return found[1].madvise(found[0].cast("void *", first), length, WILL_NEED) == 0


def available_bytes() -> int:
    """Return how much RAM can be taken without pushing others out; 0 where the system does not tell."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", MEMORY_FIGURES.read_text(), re.M)
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * PAGE_BYTES
    except (ValueError, OSError):
        return 0
