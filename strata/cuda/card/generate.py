"""Filling a card's memory with random stored weights, from a seed: for synthetic models, which no host could copy.

Half i (16 bits) of the array is  (random & kept[i mod n]) | fixed[i mod n],  n halves a block; the random bits of halves
4 w .. 4 w + 3 are SplitMix64's finaliser of seed + (w + 1) * GOLDEN, the low half first.  Does not know: formats.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.seam import Target, kernel

THREADS = 256
HALVES = 4
GOLDEN, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFT_30, SHIFT_27, SHIFT_31, HALF = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(16)
LOW_HALF = np.uint64(0xFFFF)


@cache
def fill_kernel(target: Target):
    """Return kernel(out, n_halves, halves_per_block, kept, fixed, seed); four halves a thread."""

    @kernel(THREADS)
    def run(out, n_halves, halves_per_block, kept, fixed, seed):
        word = np.int64(cuda.blockIdx.x) * THREADS + np.int64(cuda.threadIdx.x)
        x = np.uint64(seed) + np.uint64(word + 1) * GOLDEN
        x = (x ^ (x >> SHIFT_30)) * FIRST
        x = (x ^ (x >> SHIFT_27)) * SECOND
        x = x ^ (x >> SHIFT_31)
        for i in range(HALVES):
            half = HALVES * word + i
            if half < n_halves:
                at = half % np.int64(halves_per_block)
                out[half] = np.uint16((np.int32(x & LOW_HALF) & kept[at]) | fixed[at])
            x = x >> HALF

    return run


def launch_fill(device: CudaDevice, raw, kept, fixed, seed: int) -> Launch:
    """Fill uint8 raw of an even length; kept, fixed int32 [halves per block] on the card, 0 <= seed < 2^63."""
    halves = raw.view(np.uint16)
    n_words = (halves.size + HALVES - 1) // HALVES
    shape = Shape(((n_words + THREADS - 1) // THREADS, 1), THREADS)
    arguments = (halves, np.int64(halves.size), np.int32(kept.size), kept, fixed, np.int64(seed))
    return Launch(device, fill_kernel(device.target), shape, arguments)
