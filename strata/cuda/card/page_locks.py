"""Host memory that others allocated, page-locked so that kernels can read it.

Locked once per process for all cards (portable); whoever locked it unlocks it.  Does not know: what lies there.
"""

import numpy as np

from strata.cuda.card.found import _checked


def register(array: np.ndarray, owned: set[int]) -> tuple[int | None, str]:
    """Lock a contiguous array's memory; return (its address for kernels of the current card, "") or (None, the driver's reason).

    `owned` takes the addresses that were locked here: memory that is locked already is not.
    """
    from cuda.bindings import driver

    address, flags = array.ctypes.data, driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
    (code,) = driver.cuMemHostRegister(address, array.nbytes, flags)
    if code == driver.CUresult.CUDA_SUCCESS:
        owned.add(address)
    elif code != driver.CUresult.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
        return None, code.name
    ends = [driver.cuMemHostGetDevicePointer(at, 0) for at in (address, address + array.nbytes - 1)]
    failed = [code.name for code, *_ in ends if code != driver.CUresult.CUDA_SUCCESS]
    if failed:  # what was locked already may be less than the array
        unregister(array, owned)
        return None, failed[0]
    return int(ends[0][1]), ""


def unregister(array: np.ndarray, owned: set[int]) -> None:
    """Unlock an array's memory, where it was locked here."""
    from cuda.bindings import driver

    address = array.ctypes.data
    if address in owned:
        owned.discard(address)
        _checked(driver.cuMemHostUnregister(address))
