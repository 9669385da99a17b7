"""A kernel's arguments: their Numba types, and their layout as kernel parameters.

Contiguous device arrays become 5 + 2 n cells of 8 bytes (two unused, number of values, bytes of one, address, shape,
strides), numbers one cell each.  Nothing is asked of a card: arrays need a dtype, a shape, strides and an address.
Does not know: kernels.
"""

from functools import cache

import numpy as np

from strata.errors import DeviceError

NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
"""Types of numbers that kernels take: numpy's own, so that their size is never guessed."""


@cache
def _number_type(dtype: np.dtype):
    """Return the type of a number, None where kernels do not take it."""
    from numba.cuda import types

    return getattr(types, dtype.name) if dtype.name in NUMBERS else None


@cache
def _array_type(dtype: np.dtype, n_dimensions: int):
    from numba.cuda import types

    return types.Array(getattr(types, dtype.name), n_dimensions, "C")


def type_of(argument):
    """Return the Numba type of a numpy number or a contiguous device array; raises DeviceError for anything else."""
    if isinstance(argument, np.generic) and (found := _number_type(argument.dtype)) is not None:
        return found
    if hasattr(argument, "device_ctypes_pointer"):
        if argument.size and tuple(argument.strides) != strides_of(argument.shape, argument.dtype.itemsize):
            raise DeviceError(f"an array with strides {argument.strides}", "kernels take contiguous arrays", "copy it first")
        return _array_type(argument.dtype, len(argument.shape))
    raise DeviceError(f"a kernel's argument of type {type(argument).__name__}", "kernels take device arrays and numpy numbers", "wrap it")


def strides_of(shape: tuple[int, ...], n_bytes: int) -> tuple[int, ...]:
    """Return the strides in bytes of a contiguous array."""
    strides: list[int] = []
    for length in reversed(shape):
        strides.insert(0, n_bytes)
        n_bytes *= length
    return tuple(strides)


def cells_of(arguments: tuple) -> np.ndarray:
    """Return the kernel's parameters, one 8-byte cell each (int64)."""
    cells: list[int] = []
    for argument in arguments:
        if isinstance(argument, np.generic):
            cells.append(_number_cell(argument))
        else:
            n_bytes, shape = argument.dtype.itemsize, tuple(int(n) for n in argument.shape)
            address = argument.device_ctypes_pointer.value or 0
            cells += [0, 0, int(argument.size), n_bytes, address, *shape, *strides_of(shape, n_bytes)]
    return np.array(cells, np.int64)


def _number_cell(value: np.generic) -> int:
    if value.dtype.kind == "i":
        return int(value)
    return int.from_bytes(value.tobytes().ljust(8, b"\0"), "little", signed=True)
