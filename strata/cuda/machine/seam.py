"""The CUDA seam: everything that a kernel of this executor says which Numba cannot say, under one roof.

`SEAM` has the names of `strata.numerics.cpu.SEAM` and is what `numerics` and `formats` are compiled with; `ALIGNED_SEAM`
is the same for bytes in which every 32-bit field lies at a multiple of four.  Under NUMBA_ENABLE_CUDASIM=1 the simulated
bodies stand in: logic and bounds, never bits.  Does not know: formats, products, devices.

    jit(function), kernel(bounds)(function)     a device function; an entry point (compiled at its first launch, never at import)
    dp4a(a, b, c) -> int32                      c + the dot product of four int8; dp4a_unsigned: a's bytes are 0 .. 255
    mma32(target)(a0..a3, b0, b1, c0..c3), mma16(target)(a0, a1, b0, c0..c3) -> four int32
                                                int8 tensor cores, 16 x 8 outputs over k = 32 or 16: with lane = 4 r + j of a
                                                warp, a0 a2 / a1 a3 = words j, j + 4 of rows r / r + 8, b0 b1 = words j, j + 4
                                                of column r, c0 c1 / c2 c3 = rows r / r + 8 in columns 2 j, 2 j + 1
    exchange_float/int(value, mask), shuffle_float/int(value, lane)        whole warps only
    load_four_words, load_two_words, load_four_floats, load_two_floats (array, byte)     aligned vectors
    store_word(array, byte, int32)
    copies(target) -> copy16, copy4 (shared, at, array, from), commit(), wait(n)         copies to shared memory
    load_acquire(flags, i), store_release(flags, i, value)                 system scope
    clock_ns() -> int64, sleep_ns(int32)        the card's clock; a rest between two looks at a flag
    wait_for_dependency(target)(), launch_dependents(target)()             programmatic launches (compute capability 9.0)
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from numba import cuda
from numba.core import config

SIMULATED = bool(config.ENABLE_CUDASIM)
if SIMULATED:
    from strata.cuda.machine import simulated as machine
else:
    from strata.cuda.machine import intrinsics as machine


@dataclass(frozen=True, slots=True)
class Target:
    """What a card's instruction set has: the knobs by which kernels differ between cards, never their results.

    `wide_tensor_cores`: m16n8k32 and m16n8k16 for int8; `async_copies`: cp.async; `dependent_launch`: griddepcontrol;
    `bulk_copies`: cp.async.bulk and barriers that count bytes (bulk.py), where the compiler sees that a warp's operands of them are one
    (for 12.x it does not, and makes a loop over threads of each copy).
    """

    wide_tensor_cores: bool
    async_copies: bool
    dependent_launch: bool
    bulk_copies: bool


def target_of(capability: tuple[int, int]) -> Target:
    """Return the target of a compute capability, (7, 5) or later."""
    bulk = (9, 0) <= capability < (12, 0)
    return Target(capability >= (8, 0), capability >= (8, 0), capability >= (9, 0), bulk)


def jit(function):
    """Compile a device function; always inlined."""
    return cuda.jit(function, device=True) if SIMULATED else cuda.jit(function, device=True, forceinline=True)


def kernel(n_threads: int, min_blocks: int = 0):
    """Return a decorator for entry points of blocks of n_threads, of which min_blocks should fit on a multiprocessor."""
    bounds = (n_threads, min_blocks) if min_blocks else n_threads
    return cuda.jit(launch_bounds=bounds, lto=False) if not SIMULATED else cuda.jit()


@jit
def sub(a, b):
    return machine.add(a, -b)


add, mul, div, fma, sqrt = machine.add, machine.mul, machine.div, machine.fma, machine.sqrt
bits, from_bits, round_even = machine.bits, machine.from_bits, machine.round_even
half, to_half, brain = machine.half, machine.to_half, machine.brain
load_u8, load_u16, load_word = machine.load_u8, machine.load_u16, machine.load_word
dp4a, dp4a_unsigned, permute_bytes, sync_warp = machine.dp4a, machine.dp4a_unsigned, machine.permute_bytes, machine.sync_warp
shuffle_float, shuffle_int = machine.shuffle_float, machine.shuffle_int
exchange_float, exchange_int = machine.exchange_float, machine.exchange_int
load_four_words, load_two_words = machine.load_four_words, machine.load_two_words
load_four_floats, load_two_floats = machine.load_four_floats, machine.load_two_floats
store_word = machine.store_word
load_acquire, store_release = machine.load_acquire, machine.store_release
clock_ns, sleep_ns = machine.clock_ns, machine.sleep_ns


def table(array: np.ndarray):
    """Return a helper `lookup(i)` over a constant one-dimensional int32 or uint32 array."""
    constant = np.ascontiguousarray(array)
    return machine.constant_table(constant)


@jit
def _nothing():
    return


def mma32(target: Target):
    """Return the 16 x 8 x 32 product for a target; older cards make it of four 8 x 8 x 16 ones: the same integers."""
    if target.wide_tensor_cores:
        return machine.mma_m16n8k32
    small = machine.mma_m8n8k16

    @jit
    def product(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
        c0, c1 = small(a0, b0, c0, c1)
        c0, c1 = small(a2, b1, c0, c1)
        c2, c3 = small(a1, b0, c2, c3)
        c2, c3 = small(a3, b1, c2, c3)
        return c0, c1, c2, c3

    return product


def mma16(target: Target):
    """Return the 16 x 8 x 16 product for a target."""
    if target.wide_tensor_cores:
        return machine.mma_m16n8k16
    small = machine.mma_m8n8k16

    @jit
    def product(a0, a1, b0, c0, c1, c2, c3):
        c0, c1 = small(a0, b0, c0, c1)
        c2, c3 = small(a1, b0, c2, c3)
        return c0, c1, c2, c3

    return product


def copies(target: Target, n_pending: int) -> SimpleNamespace:
    """Return copy16, copy4, commit and wait (for all but the latest n_pending groups) for a target."""
    if target.async_copies:
        return SimpleNamespace(
            copy16=machine.copy_async(16), copy4=machine.copy_async(4), commit=machine.copy_commit,
            wait=machine.copy_wait(n_pending),
        )
    return SimpleNamespace(copy16=machine.copy_now(16), copy4=machine.copy_now(4), commit=_nothing, wait=_nothing)


def wait_for_dependency(target: Target):
    """Return `wait()`: behind it, everything that earlier kernels of the stream wrote can be read."""
    return machine.wait_for_dependency if target.dependent_launch else _nothing


def launch_dependents(target: Target):
    """Return `go()`: once all blocks of a kernel have said it or ended, blocks of the next one may start and fetch weights ahead.

    Tiny kernels say it first, others when their own first weights are on the way: whoever says it has a place on a multiprocessor
    already, so the next kernel's blocks take none that a working block needs.
    """
    return machine.launch_dependents if target.dependent_launch else _nothing


def _seam(load_u32):
    return SimpleNamespace(
        jit=jit, add=add, sub=sub, mul=mul, div=div, fma=fma, sqrt=sqrt, bits=bits, from_bits=from_bits, half=half,
        to_half=to_half, brain=brain, round_even=round_even, load_u8=load_u8, load_u16=load_u16, load_u32=load_u32,
        table=table,
    )


SEAM = _seam(machine.load_pair_words)
ALIGNED_SEAM = _seam(load_word)
