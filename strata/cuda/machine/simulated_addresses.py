"""The names of `address_intrinsics.py` for Numba's simulator.  Does not know: bits."""

import ctypes
from dataclasses import dataclass

import numpy as np

from strata.cuda.machine.simulated import _bytes_of, _read


@dataclass(frozen=True, slots=True)
class Pointer:
    """A place in an array's bytes; sums with numbers are places, differences of places and low bits are numbers."""

    array: np.ndarray
    byte: int

    def __add__(self, n):
        return Pointer(self.array, self.byte + int(n))

    __radd__ = __add__

    def __sub__(self, other):
        return self.byte - other.byte if isinstance(other, Pointer) else Pointer(self.array, self.byte - int(other))

    def __and__(self, mask):
        return Pointer(self.array, self.byte & int(mask)) if mask < 0 else self.byte & int(mask)

    def __lt__(self, other):
        return self.byte < other.byte


def shared_address(array):
    return Pointer(_bytes_of(array), 0)


global_address = shared_address


def _from(at, n_bytes, kind):
    return _read(at.array, at.byte, n_bytes, kind)


def bytes_at(at, n_bytes):
    """A row of bytes at a multiple of 16, as bulk copies take it."""
    if at.byte % 16 or n_bytes % 16 or n_bytes <= 0 or at.byte < 0 or at.byte + n_bytes > at.array.size:
        raise IndexError(f"bytes {at.byte} .. {at.byte + n_bytes} of {at.array.size}: outside, or not aligned")
    return at.array[at.byte : at.byte + n_bytes]


def load_u8(raw, at):
    return np.uint32(_from(at, 1, np.uint8)[0])


def load_u16(raw, at):
    return np.uint32(_from(at, 2, np.uint16)[0])


def load_word(raw, at):
    return _from(at, 4, np.uint32)[0]


def load_pair_words(raw, at):
    return np.uint32(load_u16(raw, at) | (load_u16(raw, at + 2) << 16))


def shared_word(at):
    return _from(at, 4, np.uint32)[0]


def shared_half_word(at):
    return np.uint32(_from(at, 2, np.uint16)[0])


def shared_two_words(at):
    return tuple(_from(at, 8, np.int32))


def shared_four_words(at):
    return tuple(_from(at, 16, np.int32))


def shared_four_floats(at):
    return tuple(_from(at, 16, np.float32))


def shared_two_floats(at):
    return tuple(_from(at, 8, np.float32))


def store_global_float(at, value):
    _from(at, 4, np.float32)[0] = value


def store_shared_float(at, value):
    _from(at, 4, np.float32)[0] = value


def store_shared_four_floats(at, first, second, third, fourth):
    _from(at, 16, np.float32)[:] = first, second, third, fourth


def global_four_words(at):
    """At a place in an array, or at a number: an address of this process, as `CudaDevice.register` gives it."""
    if isinstance(at, Pointer):
        return tuple(_from(at, 16, np.int32))
    if int(at) % 16:
        raise IndexError(f"a load of 16 bytes at address {int(at):#x}")
    return tuple(np.int32(word) for word in (ctypes.c_int32 * 4).from_address(int(at)))


def store_global_four_words(at, a, b, c, d):
    _from(at, 16, np.int32)[:] = a, b, c, d


def copier(n_bytes, to_offset, from_offset, asynchronous, once):
    def copy(to, source):
        _from(to + to_offset, n_bytes, np.uint32)[:] = _from(source + from_offset, n_bytes, np.uint32)

    return copy
