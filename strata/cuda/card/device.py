"""One card: its context, stream and memory, with every byte accounted by purpose.

What is placed on a card (weights, sessions, buffers) is taken by name, as on a host device, so that running out is a clear
error and `taken` explains where the bytes are; small arrays lie in blocks (`small_arrays.py`), and kernels and graphs, whose size
only the driver knows, are measured as they are loaded.  `memory()` sets the sum against what the driver reports.  A thread that
works with a card calls `attach` once.
Does not know: what is computed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba import cuda

from strata.cuda.card.accounts import Accounts, Memory
from strata.cuda.card.found import Card, _checked, card_at
from strata.cuda.card.page_locks import register, unregister
from strata.cuda.card.small_arrays import LARGE, PAGE_BYTES, SmallArrays, allocated_bytes
from strata.cuda.machine.seam import SIMULATED, Target, target_of
from strata.errors import DeviceError, DeviceMemoryError

PLAIN_SHARED_BYTES = 48 * 1024
"""Shared memory of a block that needs no asking."""
SHARED_SHARE = 100
"""Percent of a multiprocessor's first-level memory that is to be shared memory with kernels that start before the one ahead has ended: where
two ask for different shares, the second can not begin on a multiprocessor before the first has left it."""
SIMULATED_CARD = Card(0, "the simulator", (9, 0), 1 << 33, 1, None)
LOCKS: dict[int, threading.RLock] = {}
"""By a card's number: stages of one card take turns."""


class CudaDevice(Accounts):
    """A card in use, with its accounts."""

    is_blueprint = False

    def __init__(self, index: int, budget_bytes: int | None = None) -> None:
        self.card = SIMULATED_CARD if SIMULATED else card_at(index)
        super().__init__(f"cuda:{index}", budget_bytes)
        self.index = index
        self.target: Target = target_of(self.card.capability)
        self.kernels: dict = {}
        self._is_measuring = False
        self._registered: set[int] = set()
        self.why_not_registered = ""
        self.lock = LOCKS.setdefault(index, threading.RLock())
        """Held by whoever sends to the card: nothing may come between while a graph is captured, nor may another stage's copy."""
        self.attach()
        self.stream = cuda.stream()
        self._small = SmallArrays(self.taken)
        self._tidy()
        self._free_at_start = self._driver_free()

    @property
    def kind(self) -> str:
        return "cuda"

    def attach(self) -> None:
        """Make this card the current one of the calling thread."""
        if not SIMULATED:
            cuda.select_device(self.index)

    def _driver_free(self) -> int:
        if SIMULATED:
            return self.card.total_bytes - self.taken_bytes
        return cuda.current_context().get_memory_info().free

    def memory(self) -> Memory:
        """Return predicted and reported use."""
        self._settle()
        free = self._driver_free()
        return Memory(self.taken_bytes, self._free_at_start - free, free, self.card.total_bytes)

    def give_back(self, purpose: str) -> None:
        """Release what was taken for a purpose; its arrays must have been dropped."""
        with self.lock:
            self.taken.pop(purpose, None)
            self._small.give_back(purpose)
            self._settle()

    def _settle(self) -> None:
        """Have what was dropped be free again: bytes of small arrays for the next ones, others for the driver."""
        if not SIMULATED:
            with self.lock:
                self._small.settle(self.synchronise)
                cuda.current_context().deallocations.clear()

    def _tidy(self) -> None:
        """Have blocks be the driver's again that hold nothing: they wait for small arrays otherwise, as it keeps freed pages for a while."""
        if not SIMULATED:
            with self.lock:
                self._small.tidy(self.synchronise)
                cuda.current_context().deallocations.clear()

    @contextmanager
    def measured(self, purpose: str) -> Iterator[None]:
        """Account to a purpose what the driver takes, or gives back, meanwhile: what has no size of its own (kernels, graphs).

        Inside another measurement nothing is measured twice.
        Raises DeviceError naming the purpose where the card is full.  What another program on the card takes meanwhile is counted in.
        """
        with self.lock:
            if self._is_measuring:
                yield
                return
            before, self._is_measuring = self._driver_free(), True
            try:
                yield
            except DeviceError as error:
                if "OUT_OF_MEMORY" not in str(error):
                    raise
                why = f"the card is out of memory: {before:,} bytes are free"
                raise DeviceError(f"{purpose} on {self.name}", why, "use fewer slots, a shorter context or another layer split") from error
            finally:
                self._is_measuring = False
            self.taken[purpose] = max(0, self.taken.get(purpose, 0) + before - self._driver_free())

    def empty(self, purpose: str, shape: int | tuple[int, ...], dtype):
        """Allocate an array for a purpose, contents undefined; at least STEP bytes, so vector reads never leave it."""
        wanted = int(np.prod(shape)) * np.dtype(dtype).itemsize
        n_bytes = allocated_bytes(wanted)
        with self.lock:
            whole = self._whole(purpose, n_bytes) if SIMULATED or wanted >= LARGE else self._carved(purpose, n_bytes)
        return whole[:wanted].view(dtype).reshape(shape)

    def pages(self, purpose: str, n_bytes: int):
        """Allocate uint8 [n_bytes] for a purpose in pages that it shares with nothing, so that parts may be moved to another."""
        with self.lock:
            return self._whole(purpose, -(-n_bytes // PAGE_BYTES) * PAGE_BYTES)[:n_bytes]

    def _whole(self, purpose: str, n_bytes: int):
        """Allocate uint8 [n_bytes] of the driver's, n_bytes as the driver counts them; where they are short, without empty blocks."""
        self._settle()
        try:
            return self._of_driver(purpose, n_bytes)
        except DeviceMemoryError:
            self._tidy()
            return self._of_driver(purpose, n_bytes)

    def _of_driver(self, purpose: str, n_bytes: int):
        self.take(purpose, n_bytes)
        try:
            return self._guarded(purpose, n_bytes, lambda: cuda.device_array(n_bytes, np.uint8))
        except DeviceError:
            self.untake(purpose, n_bytes)
            raise

    def _carved(self, purpose: str, n_bytes: int):
        """Return uint8 [n_bytes] in a block."""
        self._small.settle(self.synchronise)
        piece = self._small.carve(purpose, n_bytes, self._block)
        described = {"shape": (n_bytes,), "strides": None, "typestr": "|u1", "data": (piece.address, False), "version": 3}
        return cuda.from_cuda_array_interface(described, owner=piece)

    def _block(self, purpose: str) -> tuple[Any, int]:
        """Allocate a block for small arrays, the first of which is one for a purpose; return it and its address."""
        self.require_room(purpose, PAGE_BYTES)
        memory = self._guarded(purpose, PAGE_BYTES, lambda: cuda.device_array(PAGE_BYTES, np.uint8))
        return memory, memory.device_ctypes_pointer.value

    def _guarded(self, purpose: str, n_bytes: int, allocate: Callable):
        """Run an allocation; the driver's refusal becomes a DeviceMemoryError."""
        if SIMULATED:
            return allocate()
        from numba.cuda.cudadrv.driver import CudaAPIError

        try:
            return allocate()
        except CudaAPIError as error:
            if "OUT_OF_MEMORY" not in str(error):
                raise DeviceError(self.name, str(error).splitlines()[0], "check the driver with nvidia-smi") from error
            raise DeviceMemoryError(self.name, purpose, n_bytes, self._driver_free()) from error

    def upload(self, purpose: str, array: np.ndarray):
        """Allocate for a purpose and copy a host array there; returns when the copy is done."""
        array = np.ascontiguousarray(array)
        placed = self.empty(purpose, array.shape, array.dtype)
        placed.copy_to_device(array)
        return placed

    def zeros(self, purpose: str, shape: int | tuple[int, ...], dtype):
        """Allocate an array of zeros."""
        return self.upload(purpose, np.zeros(shape, dtype))

    def pinned(self, shape: int | tuple[int, ...], dtype) -> np.ndarray:
        """Return page-locked host memory as a numpy array."""
        return self._guarded("pinned memory", int(np.prod(shape)) * np.dtype(dtype).itemsize, lambda: cuda.pinned_array(shape, dtype))

    def mapped(self, shape: int | tuple[int, ...], dtype) -> np.ndarray:
        """Return page-locked host memory that kernels address too."""
        return self._guarded("mapped memory", int(np.prod(shape)) * np.dtype(dtype).itemsize, lambda: cuda.mapped_array(shape, dtype))

    def register(self, array: np.ndarray) -> int | None:
        """Page-lock a host array for cards; return the address at which kernels see it, None with `why_not_registered` set."""
        if SIMULATED:
            return array.ctypes.data
        self.attach()
        address, self.why_not_registered = register(array, self._registered)
        return address

    def unregister(self, array: np.ndarray) -> None:
        """Undo `register` where this device did it; nothing may be reading the array."""
        if not SIMULATED:
            unregister(array, self._registered)

    @property
    def free_bytes(self) -> int:
        """What the driver has free."""
        return self._driver_free()

    @contextmanager
    def keeping_memory(self) -> Iterator[None]:
        """Free no dropped array meanwhile: freeing waits for the card, which may be waiting for this thread."""
        if SIMULATED:
            yield
            return
        with cuda.current_context().defer_cleanup(), self._small.keeping():
            yield

    def is_idle(self) -> bool:
        """Whether the card's stream has nothing left to do; raises DeviceError where a kernel failed."""
        if SIMULATED:
            return True
        from cuda.bindings import driver

        (code,) = driver.cuStreamQuery(int(self.stream.handle))
        if code == driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        _checked((code,))
        return True

    def function_of(self, dispatcher, types: tuple):
        """Return the driver's function of a kernel for argument types, compiled and loaded at its first use here."""
        key = (dispatcher, types)
        if key not in self.kernels:
            from strata.cuda.card.loading import load_function

            with self.measured("kernels"):
                self.kernels[key] = load_function(self.card, dispatcher, types)
        return self.kernels[key]

    def allow_shared(self, function, n_bytes: int) -> None:
        """Let launches of a driver's function take up to n_bytes of dynamic shared memory, and as much as those before."""
        from cuda.bindings import driver

        names = driver.CUfunction_attribute
        most = names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        fixed = _checked(driver.cuFuncGetAttribute(names.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
        if fixed + n_bytes > PLAIN_SHARED_BYTES:
            allowed = _checked(driver.cuFuncGetAttribute(most, function))
            _checked(driver.cuFuncSetAttribute(function, most, max(n_bytes, allowed)))

    def prefer_shared(self, function) -> None:
        """Ask for SHARED_SHARE with launches of a driver's function."""
        from cuda.bindings import driver

        share = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        _checked(driver.cuFuncSetAttribute(function, share, SHARED_SHARE))

    def event(self, timing: bool = False):
        """Return a new event: `record(stream)`, `wait(stream)`, `synchronize()`."""
        return cuda.event(timing=timing)

    def synchronise(self) -> None:
        """Wait for the card's stream; raises DeviceError where a kernel failed."""
        if SIMULATED:
            return
        from cuda.bindings import driver

        _checked(driver.cuStreamSynchronize(int(self.stream.handle)))

    def close(self) -> None:
        """Forget the kernels and what was taken; arrays are freed when they are dropped."""
        self.kernels.clear()
        self.taken.clear()
        self._small = SmallArrays(self.taken)
