"""Page-locked host memory for what a card hands out: each result in an array of its own, used again when nobody holds it any more.

A card copies straight into memory that the caller keeps, so that logits (a megabyte a row) are not copied once more on the host.
Every view of an array counts as holding it: numpy lets a view refer to the array behind it, however it was made.
Does not know: what the rows are.
"""

import sys

import numpy as np


def holders(arrays: list[np.ndarray], i: int) -> int:
    """Return how many references there are to arrays[i], as this call counts them."""
    return sys.getrefcount(arrays[i])


NOBODY = holders([np.empty(0)], 0)
"""The count of an array that only its list refers to."""
MOST_LOCKED = 16
"""Arrays that are page-locked; whoever holds more results gets common memory, which cards copy to more slowly."""


class HostRows:
    """Arrays of float32 in page-locked memory of a device; one thread takes at a time."""

    def __init__(self, device) -> None:
        self._device, self._arrays = device, []

    def take(self, n: int) -> np.ndarray:
        """Return float32 [n], contents undefined; its memory is not given out again before every view of it is gone."""
        free = [i for i in range(len(self._arrays)) if holders(self._arrays, i) == NOBODY]
        for i in free:
            if self._arrays[i].size >= n:
                return self._arrays[i][:n]
        for i in reversed(free):
            del self._arrays[i]  # too small for what is asked now
        if len(self._arrays) >= MOST_LOCKED:
            return np.empty(n, np.float32)
        self._arrays.append(self._device.pinned(n, np.float32))
        return self._arrays[-1][:n]

    @property
    def n_arrays(self) -> int:
        """Arrays that are kept."""
        return len(self._arrays)

    def close(self) -> None:
        """Let all arrays go; those that somebody holds live as long as they are held."""
        self._arrays.clear()
