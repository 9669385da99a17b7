"""A driver that is not there: it gives pages at addresses that nobody reads, as Numba's own arrays, and counts them.  Copies do nothing."""

import itertools
import weakref
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np

from strata.cuda.card.small_arrays import PAGE_BYTES


class Owner:
    """What holds pages."""


class Driver:
    """Gives pages out of `total_bytes`, frees them when Numba's queue is cleared, and takes note of every wait."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes, self.held, self.pending = total_bytes, {}, []
        self.events: list[str] = []
        self.deallocations = SimpleNamespace(clear=self.clear)
        self.defer_cleanup = nullcontext
        self._addresses = itertools.count(1 << 40, 1 << 36)

    def device_array(self, n_bytes: int, dtype):
        from numba.cuda.cudadrv.devicearray import DeviceNDArray
        from numba.cuda.cudadrv.driver import CudaAPIError, MemoryPointer, binding

        assert dtype is np.uint8 and n_bytes % PAGE_BYTES == 0
        if sum(self.held.values()) + n_bytes > self.total_bytes:
            raise CudaAPIError(2, "CUDA_ERROR_OUT_OF_MEMORY")
        address, owner = next(self._addresses), Owner()
        self.held[address] = n_bytes
        weakref.finalize(owner, self.pending.append, address)
        return DeviceNDArray((n_bytes,), (1,), np.uint8, gpu_data=MemoryPointer(None, binding.CUdeviceptr(address), n_bytes, owner=owner))

    def clear(self) -> None:
        while self.pending:
            del self.held[self.pending.pop()]

    def get_memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(free=self.total_bytes - sum(self.held.values()))


@contextmanager
def no_driver(monkeypatch, total_bytes: int):
    """Let `CudaDevice` work on such a driver, which is given."""
    from numba import cuda
    from numba.cuda import api
    from numba.cuda.cudadrv import devicearray, devices

    from strata.cuda.card import device
    from strata.cuda.card.found import Card
    from strata.cuda.tier import expert_cache

    found = Driver(total_bytes)
    stand_in = SimpleNamespace(
        device_array=found.device_array, from_cuda_array_interface=cuda.from_cuda_array_interface, current_context=lambda: found,
        stream=lambda: None, select_device=lambda index: None, pinned_array=np.zeros, mapped_array=np.zeros,
    )
    with monkeypatch.context() as patched:
        patched.setattr(devices._runtime, "ensure_context", nullcontext)
        patched.setattr(devices, "get_context", lambda: None)
        patched.setattr(api, "current_context", lambda: None)
        patched.setattr(devicearray.DeviceNDArrayBase, "copy_to_device", lambda self, values, stream=0: None)
        for room in (device, expert_cache):
            patched.setattr(room, "cuda", stand_in)
        patched.setattr(device, "card_at", lambda index: Card(index, "not there", (9, 0), total_bytes, 1, None))
        patched.setattr(device.CudaDevice, "synchronise", lambda self: found.events.append("wait"))
        yield found
