"""How fast a team of threads reads memory: the sum of a buffer larger than the caches.

The figure is what an ideal kernel could reach that reads its weights once, in order, and does nothing else.
Does not know: models.
"""

import time
from pathlib import Path

import numpy as np

from strata.cpu_pool.fork import fork
from strata.numerics.cpu import jit, kernel

LEAST_BYTES = 256 << 20
MOST_BYTES = 1 << 30
CACHES_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
PIECE_WORDS = 1 << 17
"""int64 words per piece of work: 1 MiB."""


@jit
def _sum_pieces(begin, end, arguments):
    words, sums = arguments
    for piece in range(begin, end):
        total = np.int64(0)
        for word in words[piece]:
            total += word
        sums[piece] = total


@kernel
def read_all(control, words, sums):
    """sums[p] = the sum of words[p]; words int64 [pieces, PIECE_WORDS], sums int64 [pieces]."""
    fork(control, _sum_pieces, words.shape[0], 1, (words, sums))


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
        self._words = np.ones((n_bytes // (8 * PIECE_WORDS), PIECE_WORDS), np.int64)
        self._sums = np.zeros(self._words.shape[0], np.int64)

    def measure(self) -> float:
        """Read the buffer once; return bytes per second."""
        started = time.perf_counter()
        read_all(self._control, self._words, self._sums)
        return self._words.nbytes / (time.perf_counter() - started)
