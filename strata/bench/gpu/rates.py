"""What a card can do at most, measured: copying, reading, int8 tensor-core products, fused multiply-adds.

Copying is the driver's own copy inside the card, bytes read plus bytes written; it is the bandwidth that floors are told by.
The two rates of arithmetic are those of independent chains in registers, without any memory.  Does not know: models.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda

from strata.bench.gpu.clocks import between_events, launch_us
from strata.bench.spread import Spread
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.seam import Target, fma, kernel, load_four_words, mma32

COPIED_BYTES = 2 << 30
THREADS = 256
BLOCKS_PER_UNIT = 8
AT_ONCE = 4
TURNS, STEPS, CHAINS = 256, 8, 8
N_SUMS = 4 * CHAINS
PER_THREAD = TURNS * STEPS * CHAINS
"""Operations; a turn has enough of them that its branch is lost among them."""
MMA_OPERATIONS = 2 * 16 * 8 * 32
"""Of one tensor-core product of a warp."""
FACTOR, TERM = np.float32(0.999), np.float32(0.001)
PURPOSE = "rates of the card"


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second of copying (read plus written) and of reading; int8 operations and fused multiply-adds per second."""

    copy: Spread
    read: Spread
    int8: float
    fused: float


@cache
def read_kernel(target: Target):
    """Return kernel(words, n_pieces, out): every thread adds up its pieces of 16 bytes; words int32, out int32 [threads]."""

    @kernel(THREADS)
    def run(words, n_pieces, out):
        thread, step, total = np.int64(cuda.grid(1)), np.int64(cuda.gridsize(1)), np.int32(0)
        for first in range(thread, n_pieces, AT_ONCE * step):
            for k in range(AT_ONCE):
                piece = first + k * step
                if piece < n_pieces:
                    a, b, c, d = load_four_words(words, 16 * piece)
                    total = np.int32(total ^ a ^ b ^ c ^ d)
        out[thread] = total

    return run


@cache
def mma_kernel(target: Target):
    """Return kernel(out): TURNS x STEPS times CHAINS independent tensor-core products a warp; out int32 [threads]."""
    product = mma32(target)

    @kernel(THREADS)
    def run(out):
        thread = np.int32(cuda.grid(1))
        a, b = thread, np.int32(thread * 3)
        sums = cuda.local.array(N_SUMS, np.int32)
        for i in range(N_SUMS):
            sums[i] = np.int32(0)
        turn = np.int32(0)
        while turn < TURNS:
            for _ in range(STEPS):
                for k in range(CHAINS):
                    sums[4 * k], sums[4 * k + 1], sums[4 * k + 2], sums[4 * k + 3] = product(
                        a, b, a, b, b, a, sums[4 * k], sums[4 * k + 1], sums[4 * k + 2], sums[4 * k + 3]
                    )
            turn = np.int32(turn + 1)
        total = np.int32(0)
        for i in range(N_SUMS):
            total = np.int32(total ^ sums[i])
        out[thread] = total

    return run


@cache
def fused_kernel(target: Target):
    """Return kernel(out): TURNS x STEPS times CHAINS independent fused multiply-adds a thread; out float32 [threads]."""

    @kernel(THREADS)
    def run(out):
        thread = np.int32(cuda.grid(1))
        sums = cuda.local.array(CHAINS, np.float32)
        for i in range(CHAINS):
            sums[i] = np.float32(thread + i)
        turn = np.int32(0)
        while turn < TURNS:
            for _ in range(STEPS):
                for i in range(CHAINS):
                    sums[i] = fma(sums[i], FACTOR, TERM)
            turn = np.int32(turn + 1)
        total = sums[0]
        for i in range(1, CHAINS):
            total = fma(total, FACTOR, sums[i])
        out[thread] = total

    return run


def measure(device: CudaDevice, n_times: int, copied_bytes: int = COPIED_BYTES) -> Rates:
    """Measure a card; takes twice `copied_bytes` of its memory and gives them back."""
    n_words = copied_bytes // 4
    a, b = (device.empty(PURPOSE, n_words, np.int32) for _ in range(2))
    copies = [between_events(device, lambda: b.copy_to_device(a, stream=device.stream)) for _ in range(n_times + 1)][1:]
    n_blocks = BLOCKS_PER_UNIT * device.card.multiprocessors
    n_threads, out = n_blocks * THREADS, device.empty(PURPOSE, n_blocks * THREADS, np.int32)
    shape, target = Shape((n_blocks, 1), THREADS), device.target
    reading = Launch(device, read_kernel(target), shape, (a, np.int64(n_words // 4), out))
    reads = [between_events(device, reading.go) for _ in range(n_times + 1)][1:]
    products, chains = Launch(device, mma_kernel(target), shape, (out,)), Launch(device, fused_kernel(target), shape, (out.view(np.float32),))
    mma_us, fused_us = launch_us(device, [products] * 4, n_times), launch_us(device, [chains] * 4, n_times)
    rates = Rates(
        Spread.of([2e3 * copied_bytes / ms for ms in copies]), Spread.of([1e3 * copied_bytes / ms for ms in reads]),
        1e6 * (n_threads // 32) * PER_THREAD * MMA_OPERATIONS / mma_us, 1e6 * n_threads * PER_THREAD / fused_us,
    )
    del a, b, out, reading, products, chains
    device.give_back(PURPOSE)
    return rates
