"""How fast a team of threads reads memory: sums over a buffer larger than the caches, in vectors.

The figure is what an ideal kernel could reach that reads its weights once, in order, and does nothing else.
Does not know: models.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from strata.cpu_pool.fork import fork
from strata.cpu_pool.lane_memory import address_of, load, prefetch, store
from strata.cpu_pool.lanes import splat
from strata.numerics.cpu import jit, kernel

LEAST_BYTES = 256 << 20
MOST_BYTES = 1 << 30
CACHES_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
PIECE_BYTES, SUM_BYTES = 1 << 20, 32
AHEAD_BYTES = 2048
"""How far ahead memory is asked for: without it, a core here reads a tenth less."""
NOTHING = np.int32(0)


@jit
def _read_pieces(begin, end, arguments):
    words, sums = arguments
    for piece in range(begin, end):
        at = address_of(words) + piece * PIECE_BYTES
        a = b = c = d = splat(NOTHING)
        for byte in range(at, at + PIECE_BYTES, 128):
            prefetch(byte + AHEAD_BYTES)
            prefetch(byte + AHEAD_BYTES + 64)
            a, b, c, d = a + load(byte), b + load(byte + 32), c + load(byte + 64), d + load(byte + 96)
        store(address_of(sums) + piece * SUM_BYTES, (a + b) + (c + d))


@kernel
def read_all(control, words, sums):
    """Read words and store what eight lanes add up to; words int32 [pieces, PIECE_BYTES / 4], sums int32 [pieces, 8]."""
    fork(control, _read_pieces, words.shape[0], 1, (words, sums))


def buffer_bytes() -> int:
    """Return how large the buffer must be: four times the largest cache, within limits."""
    sizes = [_kib(path.read_text()) << 10 for path in CACHES_FOLDER.glob("index*/size")]
    return min(MOST_BYTES, max(LEAST_BYTES, 4 * max(sizes, default=0)))


def _kib(text: str) -> int:
    text = text.strip()
    return int(text[:-1]) if text.endswith("K") and text[:-1].isdigit() else 0


class MemoryReader:
    """A filled buffer and its reading by a team (`control` of `Team`)."""

    def __init__(self, control: np.ndarray, n_bytes: int) -> None:
        self._control = control
        self._words = np.ones((n_bytes // PIECE_BYTES, PIECE_BYTES // 4), np.int32)
        self._sums = np.zeros((self._words.shape[0], SUM_BYTES // 4), np.int32)

    def measure(self, clock: Callable[[], float] = time.perf_counter) -> float:
        """Read the buffer once; return bytes per second."""
        started = clock()
        read_all(self._control, self._words, self._sums)
        return self._words.nbytes / (clock() - started)
