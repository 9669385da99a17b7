"""One card: its context, stream and memory, with every byte accounted by purpose.

What is placed on a card (weights, sessions, buffers) is taken by name, as on a host device, so that running out is a clear
error and `taken` explains where the bytes are; kernels and graphs, whose size only the driver knows, are measured as they are
loaded.  `memory()` sets the sum against what the driver reports.  A thread that works with a card calls `attach` once.
Does not know: what is computed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
from numba import cuda

from strata.cuda.card.found import Card, _checked, card_at
from strata.cuda.card.page_locks import register, unregister
from strata.cuda.machine.seam import SIMULATED, Target, target_of
from strata.errors import DeviceError, DeviceMemoryError

ALIGNMENT = 512
"""Bytes to which the driver rounds a small allocation up."""
LARGE, LARGE_ALIGNMENT = 1 << 20, 1 << 21
"""Allocations from LARGE on take whole pages of LARGE_ALIGNMENT bytes; smaller ones share such pages."""
PLAIN_SHARED_BYTES = 48 * 1024
"""Shared memory of a block that needs no asking."""
SIMULATED_CARD = Card(0, "the simulator", (9, 0), 1 << 33, 1, None)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: what the purposes add up to, what the driver counts since the card was opened, what is free, what there is."""

    taken_bytes: int
    reported_bytes: int
    free_bytes: int
    total_bytes: int


def allocated_bytes(wanted: int) -> int:
    """Return how many bytes of a card an array of `wanted` bytes takes."""
    step = LARGE_ALIGNMENT if wanted >= LARGE else ALIGNMENT
    return max(ALIGNMENT, -(-wanted // step) * step)


class CudaDevice:
    """A card in use; `budget_bytes` (None: all that is free) bounds what may be taken, as long as `budget_holds`."""

    is_blueprint = False

    def __init__(self, index: int, budget_bytes: int | None = None) -> None:
        self.card = SIMULATED_CARD if SIMULATED else card_at(index)
        self.name, self.index, self.budget_bytes = f"cuda:{index}", index, budget_bytes
        self.target: Target = target_of(self.card.capability)
        self.taken: dict[str, int] = {}
        self.budget_holds = True
        self.kernels: dict = {}
        self._is_measuring = False
        self._registered: set[int] = set()
        self.why_not_registered = ""
        self.lock = threading.RLock()
        """Held by whoever sends to the stream: nothing may come between while a graph is captured."""
        self.attach()
        self.stream = cuda.stream()
        self._free_at_start = self._driver_free()

    @property
    def kind(self) -> str:
        return "cuda"

    @property
    def taken_bytes(self) -> int:
        return sum(self.taken.values())

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
        if not SIMULATED:
            cuda.current_context().deallocations.clear()
        free = self._driver_free()
        return Memory(self.taken_bytes, self._free_at_start - free, free, self.card.total_bytes)

    def take(self, purpose: str, n_bytes: int) -> None:
        """Account n_bytes to a purpose; raises DeviceMemoryError, with nothing taken, where the budget does not suffice."""
        if self.budget_holds and self.budget_bytes is not None and self.taken_bytes + n_bytes > self.budget_bytes:
            raise DeviceMemoryError(self.name, purpose, n_bytes, self.budget_bytes - self.taken_bytes)
        self.taken[purpose] = self.taken.get(purpose, 0) + n_bytes

    def give_back(self, purpose: str) -> None:
        """Release what was taken for a purpose; its arrays must have been dropped."""
        self.taken.pop(purpose, None)
        if not SIMULATED:
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
        """Allocate an array for a purpose, contents undefined; at least ALIGNMENT bytes, so vector reads never leave it."""
        wanted = int(np.prod(shape)) * np.dtype(dtype).itemsize
        n_bytes = allocated_bytes(wanted)
        self.take(purpose, n_bytes)
        try:
            whole = self._guarded(purpose, n_bytes, lambda: cuda.device_array(n_bytes, np.uint8))
        except DeviceError:
            self._untake(purpose, n_bytes)
            raise
        return whole[:wanted].view(dtype).reshape(shape)

    def _untake(self, purpose: str, n_bytes: int) -> None:
        self.taken[purpose] -= n_bytes
        if not self.taken[purpose]:
            del self.taken[purpose]

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

    def move(self, purpose: str, other: str, n_bytes: int) -> None:
        """Account a part of what was taken for a purpose to another one."""
        self.taken[purpose] -= n_bytes
        self.taken[other] = self.taken.get(other, 0) + n_bytes

    def keeping_memory(self):
        """Return a context in which no dropped array is freed: freeing waits for the card, which may be waiting for this thread."""
        return nullcontext() if SIMULATED else cuda.current_context().defer_cleanup()

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
