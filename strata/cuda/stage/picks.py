"""What a row of logits says, found on the card: the two best ids, whether all values are finite, and a hash of all bits.

The rules of numerics/ranking.py (largest key, then the lower index) and numerics/hashing.py (a sum of mixed words modulo 2^64, which has
no order).  Two kernels: blocks of a row each take a part, then one block a row puts the parts together.  Only integers are
compared and summed, so no order enters.

Shapes: logits float32 [rows, vocabulary]; parts int32 [rows, blocks, 5] (first, its key, second, its key, number of values that are
not finite), part_hashes uint64 [rows, blocks, 2]; picks int32 [rows, 3] (first, second or -1, 1 where all values are finite),
hashes uint64 [rows, 2].  Does not know: samplers, requests.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.on_cuda import key
from strata.cuda.machine.seam import Target, bits, exchange_int, jit, kernel, launch_dependents, wait_for_dependency
from strata.cuda.machine.warps import sum_int
from strata.numerics.functions import INFINITY_BITS, SIGN_MASK
from strata.numerics.hashing import FIRST, FLOAT, GOLDEN, ONE, SECOND, SHIFT_27, SHIFT_30, SHIFT_31, STRIDE_A, STRIDE_B

THREADS = 256
WARPS = THREADS // 32
VALUES_PER_BLOCK = 16 * THREADS
NOBODY = np.int32(-1)
PART = 5
MAGNITUDE, INFINITY, FOLDED = FLOAT
LOW_WORD = np.uint64(0xFFFFFFFF)
HALF_WORD = np.uint64(32)


@jit
def _ranks_above(a, a_key, b, b_key):
    """Whether candidate a ranks above candidate b; an index of -1 is nobody."""
    if b < 0 or a < 0:
        return a >= 0
    return a_key > b_key or (a_key == b_key and a < b)


@jit
def _merge(first, first_key, second, second_key, other, other_key, next_, next_key):
    """The two best of two pairs of candidates."""
    if _ranks_above(other, other_key, first, first_key):
        if _ranks_above(next_, next_key, first, first_key):
            return other, other_key, next_, next_key
        return other, other_key, first, first_key
    if _ranks_above(other, other_key, second, second_key):
        return first, first_key, other, other_key
    return first, first_key, second, second_key


@jit
def _mixed(x):
    x = (x ^ (x >> SHIFT_30)) * FIRST
    x = (x ^ (x >> SHIFT_27)) * SECOND
    return x ^ (x >> SHIFT_31)


@jit
def _exchange_long(x, step):
    low = np.uint32(exchange_int(np.int32(np.uint32(x & LOW_WORD)), step))
    high = np.uint32(exchange_int(np.int32(np.uint32(x >> HALF_WORD)), step))
    return (np.uint64(high) << HALF_WORD) | np.uint64(low)


@jit
def _warp_best(first, first_key, second, second_key, step):
    return _merge(
        first, first_key, second, second_key, exchange_int(first, step), exchange_int(first_key, step), exchange_int(second, step),
        exchange_int(second_key, step),
    )


@jit
def _warp_result(first, first_key, second, second_key, wrong, a, b):
    """The two best, the count and the hashes of a warp's threads; every thread gets them."""
    first, first_key, second, second_key = _warp_best(first, first_key, second, second_key, np.int32(16))
    first, first_key, second, second_key = _warp_best(first, first_key, second, second_key, np.int32(8))
    first, first_key, second, second_key = _warp_best(first, first_key, second, second_key, np.int32(4))
    first, first_key, second, second_key = _warp_best(first, first_key, second, second_key, np.int32(2))
    first, first_key, second, second_key = _warp_best(first, first_key, second, second_key, np.int32(1))
    a, b = a + _exchange_long(a, np.int32(16)), b + _exchange_long(b, np.int32(16))
    a, b = a + _exchange_long(a, np.int32(8)), b + _exchange_long(b, np.int32(8))
    a, b = a + _exchange_long(a, np.int32(4)), b + _exchange_long(b, np.int32(4))
    a, b = a + _exchange_long(a, np.int32(2)), b + _exchange_long(b, np.int32(2))
    a, b = a + _exchange_long(a, np.int32(1)), b + _exchange_long(b, np.int32(1))
    return first, first_key, second, second_key, sum_int(wrong), a, b


@cache
def part_kernel(target: Target):
    """Return kernel(logits, n_values, n_parts, parts, part_hashes); grid (parts, rows), a warp's results are a part."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(logits, n_values, n_parts, parts, part_hashes):
        go_on()
        wait_before()
        row, thread = np.int64(cuda.blockIdx.y), np.int32(cuda.threadIdx.x)
        first = second = NOBODY
        first_key = second_key = wrong = np.int32(0)
        a = b = np.uint64(0)
        begin = np.int32(cuda.blockIdx.x) * VALUES_PER_BLOCK
        for i in range(begin + thread, min(begin + VALUES_PER_BLOCK, np.int32(n_values)), THREADS):
            value = logits[row * n_values + i]
            k = key(value)
            first, first_key, second, second_key = _merge(first, first_key, second, second_key, np.int32(i), k, NOBODY, np.int32(0))
            word = np.uint32(bits(value))
            wrong += 0 if (bits(value) & SIGN_MASK) < INFINITY_BITS else 1
            if (word & MAGNITUDE) > INFINITY:
                word = FOLDED
            base = (np.uint64(word) + ONE) * GOLDEN
            a += _mixed(base + np.uint64(i) * STRIDE_A)
            b += _mixed(base + np.uint64(i) * STRIDE_B)
        first, first_key, second, second_key, wrong, a, b = _warp_result(first, first_key, second, second_key, np.int32(wrong), a, b)
        if thread & 31 == 0:
            at = row * n_parts + np.int32(cuda.blockIdx.x) * WARPS + (thread >> 5)
            parts[PART * at], parts[PART * at + 1], parts[PART * at + 2] = first, first_key, second
            parts[PART * at + 3], parts[PART * at + 4] = second_key, wrong
            part_hashes[2 * at], part_hashes[2 * at + 1] = a, b

    return run


@cache
def pick_kernel(target: Target):
    """Return kernel(parts, part_hashes, n_parts, picks, hashes); grid (rows), one warp."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(32)
    def run(parts, part_hashes, n_parts, picks, hashes):
        go_on()
        wait_before()
        row, thread = np.int64(cuda.blockIdx.x), np.int32(cuda.threadIdx.x)
        first = second = NOBODY
        first_key = second_key = wrong = np.int32(0)
        a = b = np.uint64(0)
        for part in range(thread, n_parts, 32):
            at = row * n_parts + part
            first, first_key, second, second_key = _merge(
                first, first_key, second, second_key, parts[PART * at], parts[PART * at + 1], parts[PART * at + 2], parts[PART * at + 3]
            )
            wrong += parts[PART * at + 4]
            a += part_hashes[2 * at]
            b += part_hashes[2 * at + 1]
        first, first_key, second, second_key, wrong, a, b = _warp_result(first, first_key, second, second_key, np.int32(wrong), a, b)
        if thread == 0:
            picks[3 * row], picks[3 * row + 1], picks[3 * row + 2] = first, second, 1 if wrong == 0 else 0
            hashes[2 * row], hashes[2 * row + 1] = a, b

    return run


@dataclass(frozen=True, slots=True, eq=False)
class PickScratch:
    """Scratch for `n_rows` rows of `n_values`: parts int32, part_hashes uint64."""

    n_rows: int
    n_values: int
    parts: Any
    part_hashes: Any


def parts_of(n_values: int) -> int:
    """Return the parts of a row: one per warp."""
    return (n_values + VALUES_PER_BLOCK - 1) // VALUES_PER_BLOCK * WARPS


def make_scratch(device: CudaDevice, purpose: str, n_rows: int, n_values: int) -> PickScratch:
    """Allocate scratch for up to n_rows rows of n_values."""
    n = n_rows * parts_of(n_values)
    return PickScratch(n_rows, n_values, device.empty(purpose, PART * n, np.int32), device.empty(purpose, 2 * n, np.uint64))


def launch_picks(
    device: CudaDevice, logits, n_rows: int, scratch: PickScratch, picks, hashes, programmatic: bool = False
) -> tuple[Launch, ...]:
    """picks int32 [rows, 3] and hashes uint64 [rows, 2] of logits float32 [rows, scratch.n_values]."""
    n_values, n_parts = scratch.n_values, np.int32(parts_of(scratch.n_values))
    shape = Shape((int(n_parts) // WARPS, n_rows), THREADS)
    arguments = (logits, np.int32(n_values), n_parts, scratch.parts, scratch.part_hashes)
    together = (scratch.parts, scratch.part_hashes, n_parts, picks, hashes)
    return (
        Launch(device, part_kernel(device.target), shape, arguments, programmatic),
        Launch(device, pick_kernel(device.target), Shape((n_rows, 1), 32), together, programmatic),
    )
