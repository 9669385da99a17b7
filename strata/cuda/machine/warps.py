"""Sums and largest values over the threads of a warp, in the written orders.

A float sum is a halving tree: thread l adds the value of thread l xor 16, then xor 8, ... xor 1; addition commutes, so every
thread ends with the same bits as the tree over lanes of `numerics.orders`.  Whole warps only.  Does not know: what is summed.

    sum_row(x)       sum over 32 lanes           sum_eight(x)        over each 8 neighbouring lanes
    sum_int(x), largest_int(x), smallest_int(x)  int32, over 32 threads
    integers(target)                             the same largest_int and sum_int, in one instruction where a card has it
    ballot(condition) -> int32                   bit l is thread l's condition
    count_bits(int32), lower_lanes(lane)         set bits; the mask of threads below `lane`
    lowest_lane(bits)                            the lowest set bit's number, bits not 0
    meeting(n) -> meet(sums, thread)             n (1 .. 32) sums over 32 lanes at once, of which each thread gets one
    scale_from_sum(total, n, eps)                1 / sqrt(total / n + eps), the scale of an RMS norm
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
from numba import cuda

from strata.cuda.machine.seam import SIMULATED, Target, add, div, exchange_float, exchange_int, jit, sqrt

ONE = np.float32(1.0)
WARP = 32
FULL_WARP = 0xFFFFFFFF


@jit
def sum_row(x):
    x = add(x, exchange_float(x, np.int32(16)))
    x = add(x, exchange_float(x, np.int32(8)))
    return sum_eight(x)


@jit
def sum_eight(x):
    x = add(x, exchange_float(x, np.int32(4)))
    x = add(x, exchange_float(x, np.int32(2)))
    return add(x, exchange_float(x, np.int32(1)))


def _level(step: int, n_left: int, follow):
    """Build one level of the tree between threads `step` apart, after which a thread has n_left sums (0: it had one and keeps it)."""
    apart = np.int32(step)

    @jit
    def level(sums, thread):
        upper = (thread & step) != 0
        if n_left == 0:
            sums[0] = add(sums[0], exchange_float(sums[0], apart))
        for i in range(n_left):
            low, high = sums[i], sums[i + n_left]
            sums[i] = add(high if upper else low, exchange_float(low if upper else high, apart))
        return follow(sums, thread)

    return level


@jit
def _first(sums, thread):
    return sums[0]


@cache
def meeting(n_sums: int):
    """Build `meet(sums, thread)`: sum number thread // (32 / n_sums) of those that the 32 threads of a warp hold, sums[n] each.

    Where a thread has several sums left it hands one half over and goes on with the other, so that each level has half as many
    exchanges as the one before.  n_sums is a power of two up to 32; `sums` is overwritten.
    """
    meet = _first
    for step in (1, 2, 4, 8, 16):
        meet = _level(step, n_sums * step // 32, meet)
    return meet


@jit
def sum_int(x):
    x = np.int32(x + exchange_int(x, np.int32(16)))
    x = np.int32(x + exchange_int(x, np.int32(8)))
    x = np.int32(x + exchange_int(x, np.int32(4)))
    x = np.int32(x + exchange_int(x, np.int32(2)))
    return np.int32(x + exchange_int(x, np.int32(1)))


@jit
def _larger(a, b):
    return a if a > b else b


@jit
def largest_int(x):
    x = _larger(x, exchange_int(x, np.int32(16)))
    x = _larger(x, exchange_int(x, np.int32(8)))
    x = _larger(x, exchange_int(x, np.int32(4)))
    x = _larger(x, exchange_int(x, np.int32(2)))
    return _larger(x, exchange_int(x, np.int32(1)))


@jit
def smallest_int(x):
    return np.int32(~largest_int(np.int32(~x)))


@jit
def scale_from_sum(total, n, eps):
    return div(ONE, sqrt(add(div(total, np.float32(n)), eps)))


@jit
def lower_lanes(lane):
    return np.int32((np.int64(1) << lane) - 1)


if SIMULATED:

    @jit
    def ballot(condition):
        mine = np.int32(cuda.threadIdx.x) & 31
        bit = -(1 << 31) if mine == 31 else 1 << int(mine)
        return sum_int(np.int32(bit if condition else 0))

    @jit
    def count_bits(word):
        return np.int32(bin(int(word) & FULL_WARP).count("1"))

    _reduced_largest, _reduced_sum = largest_int, sum_int

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    def _reduction(name):
        text = f"redux.sync.{name}.s32 $0, $1, {FULL_WARP:#x};"
        word = ir.IntType(32)

        def emit(context, builder, signature, arguments):
            return builder.call(ir.InlineAsm(ir.FunctionType(word, [word]), text, "=r,r", side_effect=True), arguments)

        return intrinsic(lambda typing_context, x: (types.int32(types.int32), emit))

    _reduced_largest, _reduced_sum = _reduction("max"), _reduction("add")

    @jit
    def ballot(condition):
        return np.int32(cuda.ballot_sync(FULL_WARP, condition))

    @jit
    def count_bits(word):
        return np.int32(cuda.popc(word))


@jit
def lowest_lane(bits):
    return count_bits(np.int32(~bits & (bits - 1)))


@cache
def integers(target: Target) -> SimpleNamespace:
    """Return `largest` and `sum` of int32 over a warp for a target: integers have no order, so the way does not matter."""
    if target.wide_tensor_cores:  # compute capability 8.0, which brought the instruction too
        return SimpleNamespace(largest=_reduced_largest, sum=_reduced_sum)
    return SimpleNamespace(largest=largest_int, sum=sum_int)
