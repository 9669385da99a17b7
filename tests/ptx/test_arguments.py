"""Kernel parameters are packed as Numba packs them, without a card."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from strata.cuda.card.compiling import why_no_compiler
from strata.errors import DeviceError

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
ADDRESS = 0x7F00_1234_5600


def device_array(address: int, shape, dtype):
    """A device array of Numba's own class at an address that nobody reads."""
    from numba.cuda.cudadrv.devicearray import DeviceNDArray

    from strata.cuda.card.arguments import strides_of

    memory = SimpleNamespace(device_ctypes_pointer=ctypes.c_void_p(address), size=1 << 20)
    return DeviceNDArray(shape, strides_of(shape, np.dtype(dtype).itemsize), dtype, gpu_data=memory)


def numbas_cells(types, arguments) -> list[int]:
    """The cells that Numba's own launch makes."""
    from numba.cuda.dispatcher import _Kernel

    values: list = []
    for numba_type, argument in zip(types, arguments, strict=True):
        _Kernel._prepare_args(SimpleNamespace(extensions=[]), numba_type, argument, 0, [], values)
    return [value if isinstance(value, int) else int.from_bytes(bytes(value).ljust(8, b"\0"), "little") for value in values]


ARGUMENTS = (
    lambda: device_array(ADDRESS, (77,), np.float32), lambda: device_array(ADDRESS + 64, (1,), np.int8),
    lambda: device_array(ADDRESS, (3, 5, 7), np.uint64), lambda: device_array(ADDRESS, (1 << 33,), np.uint8),
    lambda: np.int32(-5), lambda: np.int64(1 << 40), lambda: np.float32(-0.1), lambda: np.float64(1e300), lambda: np.float32(np.nan),
    lambda: np.uint64((1 << 64) - 5), lambda: np.uint32(1 << 31), lambda: np.int16(-3),
)


@pytest.mark.parametrize("make", ARGUMENTS)
def test_an_argument_has_numbas_type_and_cells(make):
    from numba import cuda

    from strata.cuda.card.arguments import cells_of, type_of

    argument = make()
    found, dispatcher = type_of(argument), cuda.jit(lambda x: None)
    assert found == dispatcher.typeof_pyval(argument)
    ours = [value & 0xFFFF_FFFF_FFFF_FFFF for value in cells_of((argument,)).tolist()]
    wanted = numbas_cells((found,), (argument,))
    used = (1 << 8 * argument.itemsize) - 1 if isinstance(argument, np.generic) else 0xFFFF_FFFF_FFFF_FFFF
    assert [value & used for value in ours] == [value & used for value in wanted]


def test_several_arguments_follow_each_other():
    from strata.cuda.card.arguments import cells_of, type_of

    arguments = (device_array(ADDRESS, (8,), np.int16), np.int32(3), device_array(ADDRESS, (2,), np.float32))
    assert cells_of(arguments).tolist() == numbas_cells(tuple(map(type_of, arguments)), arguments)


@pytest.mark.parametrize("argument", [3, 0.5, np.zeros(4, np.float32), np.float16(1), np.bool_(True)])
def test_other_arguments_are_refused(argument):
    from strata.cuda.card.arguments import type_of

    with pytest.raises(DeviceError, match="device arrays and numpy numbers"):
        type_of(argument)


def test_an_array_with_gaps_is_refused():
    from strata.cuda.card.arguments import type_of

    with pytest.raises(DeviceError, match="contiguous"):
        type_of(SimpleNamespace(device_ctypes_pointer=ctypes.c_void_p(ADDRESS), size=8, shape=(8,), strides=(8,), dtype=np.dtype(np.float32)))
