"""Memory by address: shared memory as the kernels of packed weights use it.

An address of shared memory is an int64 that `shared_address` gives once per thread, a place in global memory one that
`global_address` gives.  Loads and copies take address plus constant offsets, so that the compiler folds the offsets into the
instructions; through Numba's arrays it recomputes the base for every access.  In the simulator an address is a pointer
object that checks its bounds and alignment.

    shared_address(array), global_address(array) -> address
    SHARED_SEAM, SHARED_ALIGNED_SEAM     seams for `formats`: load_u8/u16/u32(ignored, address)
    shared_float(address) -> float32; shared_word(address), shared_half_word(address) -> uint32; shared_two_words, shared_four_words -> int32s; shared_two_floats, shared_four_floats -> float32s
    store_global_float(address, value)
    store_shared_float(address, float32); store_shared_four_floats(address, four float32)
    global_four_words(address) -> four int32, store_global_four_words(address, a, b, c, d)     multiples of 16; mapped host memory too
    copier(n_bytes, to_offset, from_offset, target, once) -> copy(shared address, global address)
    copy_series(n_bytes, count, to_step, from_step, left_step, target, once) -> copy(shared address, global address, left)

Does not know: what lies there.
"""

from types import SimpleNamespace

import numpy as np

from strata.cuda.machine import seam
from strata.cuda.machine.seam import SIMULATED, Target

if SIMULATED:
    from strata.cuda.machine import simulated_addresses as machine
else:
    from strata.cuda.machine import address_intrinsics as machine

shared_address, global_address = machine.shared_address, machine.global_address
shared_word, shared_two_words, shared_four_words = machine.shared_word, machine.shared_two_words, machine.shared_four_words
shared_two_floats, shared_four_floats = machine.shared_two_floats, machine.shared_four_floats
global_four_words, store_global_four_words = machine.global_four_words, machine.store_global_four_words
shared_half_word, store_global_float, store_shared_float = machine.shared_half_word, machine.store_global_float, machine.store_shared_float
store_shared_four_floats = machine.store_shared_four_floats


@seam.jit
def shared_float(at):
    return seam.from_bits(np.int32(shared_word(at)))


def copier(n_bytes: int, to_offset: int, from_offset: int, target: Target, once: bool = False):
    """Return a copy of 4 or 16 bytes from global to shared memory, asynchronous where the card can.

    `once` (16 bytes only) passes the first-level cache by: for weights, which one block reads once.  What many blocks read
    at the same time must not: the second level serves a line to one of them after the other.
    """
    return machine.copier(n_bytes, to_offset, from_offset, target.async_copies, once)


@seam.jit
def _no_copy(to, source, left):
    """The end of a series."""
    return


def copy_series(n_bytes: int, count: int, to_step: int, from_step: int, left_step: int, target: Target, once: bool = False, first: int = 0):
    """Return `copy(to, source, left)`: `count` copies from_step bytes apart, written out, copy k where left > k * left_step."""
    if first == count:
        return _no_copy
    one = copier(n_bytes, first * to_step, first * from_step, target, once)
    others, before = copy_series(n_bytes, count, to_step, from_step, left_step, target, once, first + 1), first * left_step

    @seam.jit
    def copy(to, source, left):
        if left > before:
            one(to, source)
        others(to, source, left)

    return copy


def _shared_seam(load_u32) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(seam.SEAM), "load_u8": machine.load_u8, "load_u16": machine.load_u16, "load_u32": load_u32})


SHARED_SEAM = _shared_seam(machine.load_pair_words)
SHARED_ALIGNED_SEAM = _shared_seam(machine.load_word)
