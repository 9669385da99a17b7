"""Weights on their way to the second-level cache while the card waits for something else.

A launch that is bound by latency leaves the memory idle.  Its blocks can ask for what a later launch reads: the copy ends in the
cache, no thread waits for it, and no bit depends on it.  Each thread asks for whole CHUNKs, so that a block of 128 threads has
asked in a few instructions; blocks take chunks in turn.

    places_of(arrays) -> (address, bytes, address, bytes)     arguments of a launch for up to MOST_ARRAYS arrays of weights
    asking(target) -> ask(address, n_bytes, block, n_blocks, thread, n_threads)

Does not know: what the arrays hold, who reads them.
"""

import numpy as np

from strata.cuda.machine.addresses import prefetch
from strata.cuda.machine.seam import SIMULATED, Target, jit

PREFETCH = True
"""Whether launches ask for what later ones read."""
CHUNK = 4096
"""Bytes of one request."""
MOST_ARRAYS = 2
LOW_BITS = 15
"""What addresses and lengths of requests have none of."""


def asking(target: Target):
    """Build `ask(...)`: this thread's part of the whole pieces of 16 bytes in a range; nothing on cards without the instruction."""

    @jit
    def ask(address, n_bytes, block, n_blocks, thread, n_threads):
        at, end = np.int64((address + LOW_BITS) & ~LOW_BITS), np.int64((address + n_bytes) & ~LOW_BITS)
        at += np.int64(np.int32(block + n_blocks * thread)) * CHUNK
        while at < end:
            prefetch(at, np.int32(min(np.int64(CHUNK), end - at)))
            at += np.int64(np.int32(n_blocks * n_threads)) * CHUNK

    @jit
    def nothing(address, n_bytes, block, n_blocks, thread, n_threads):
        return

    return ask if target.dependent_launch else nothing


def places_of(arrays=()) -> tuple:
    """Return addresses and bytes of the first MOST_ARRAYS arrays; what is missing has 0 bytes."""
    places: list[np.int64] = []
    for array in arrays[:MOST_ARRAYS] if PREFETCH else ():
        places += [address_of(array), np.int64(array.size * array.dtype.itemsize)]
    return *places, *[np.int64(0)] * (2 * MOST_ARRAYS - len(places))


def address_of(array) -> np.int64:
    """Return where an array begins; 0 in the simulator, which fetches nothing."""
    return np.int64(0 if SIMULATED else array.device_ctypes_pointer.value)
