"""A device that holds nothing: it stands in where one wants to know which kernels a model needs, without a card.

Its arrays have an address, a type and a shape, and no contents; copies do nothing.  Everything that is prepared for it
(weights, sessions, launches) is prepared by the code that serves cards, and `needed` lists the kernels that were asked for.
Sending launches does nothing, what is fetched is zero.  Does not know: models.
"""

import ctypes
import threading
from contextlib import nullcontext

import numpy as np

from strata.cuda.card.arguments import strides_of
from strata.cuda.card.found import Card
from strata.cuda.machine.seam import target_of

MULTIPROCESSORS = 132
"""Multiprocessors of an H200: they decide on grids, not on kernels."""
PAGE = 1 << 12
"""Addresses start here and grow; none is ever used."""
NO_LIMIT, MULTIPROCESSORS = 1 << 40, 132
"""What the card that is not there says of itself; grids depend on it, kernels do not."""


class BlueprintArray:
    """A contiguous array without contents: what a launch and its preparation ask of a device array."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype) -> None:
        self.dtype, self.shape = np.dtype(dtype), tuple(int(n) for n in shape)
        self.size, self.ndim = int(np.prod(self.shape)), len(self.shape)
        self.strides = strides_of(self.shape, self.dtype.itemsize)
        self.device_ctypes_pointer = ctypes.c_void_p(address)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __getitem__(self, part: slice) -> "BlueprintArray":
        """A contiguous part along the first dimension."""
        first, end, step = part.indices(self.shape[0])
        if step != 1:
            raise IndexError(f"a step of {step}: parts of device arrays are contiguous")
        return BlueprintArray(self.device_ctypes_pointer.value + first * self.strides[0], (max(0, end - first), *self.shape[1:]), self.dtype)

    def view(self, dtype) -> "BlueprintArray":
        """The same bytes of a one-dimensional array as another type."""
        return BlueprintArray(self.device_ctypes_pointer.value, (self.nbytes // np.dtype(dtype).itemsize,), dtype)

    def reshape(self, *shape) -> "BlueprintArray":
        """The same values in another shape, one length of which may be -1."""
        asked = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        known = int(np.prod([n for n in asked if n >= 0]))
        return BlueprintArray(self.device_ctypes_pointer.value, tuple(self.size // known if n < 0 else n for n in asked), self.dtype)

    def copy_to_device(self, source, stream=None) -> None:
        """Do nothing: there are no contents."""

    def copy_to_host(self, target: np.ndarray, stream=None) -> None:
        """Fill host memory with zeros."""
        target[...] = 0


class Blueprint:
    """A card of a compute capability that is not there; the methods are those of `CudaDevice`.

    needed   (dispatcher, argument types) -> number of launches, in the order in which they were first asked for
    """

    kind, is_blueprint = "cuda", True

    def __init__(self, capability: tuple[int, int]) -> None:
        self.target = target_of(capability)
        self.name, self.index, self.stream = f"a blueprint of {capability[0]}.{capability[1]}", 0, None
        self.card = Card(0, self.name, capability, NO_LIMIT, MULTIPROCESSORS, None)
        self.taken: dict[str, int] = {}
        self.needed: dict[tuple, int] = {}
        self.lock = threading.RLock()
        self._address = PAGE

    def attach(self) -> None:
        """Do nothing."""

    def synchronise(self) -> None:
        """Do nothing."""

    def measured(self, purpose: str):
        """Measure nothing."""
        return nullcontext()

    def allow_shared(self, function, n_bytes: int) -> None:
        """Do nothing."""

    def prefer_shared(self, function) -> None:
        """Do nothing."""

    def take(self, purpose: str, n_bytes: int) -> None:
        """Account n_bytes to a purpose; there is no limit."""
        self.taken[purpose] = self.taken.get(purpose, 0) + n_bytes

    def give_back(self, purpose: str) -> None:
        """Release what was taken for a purpose."""
        self.taken.pop(purpose, None)

    def empty(self, purpose: str, shape: int | tuple[int, ...], dtype) -> BlueprintArray:
        """Return an array at an address of its own."""
        made = BlueprintArray(self._address, shape if isinstance(shape, tuple) else (shape,), dtype)
        self.take(purpose, made.nbytes)
        self._address += -(-max(1, made.nbytes) // PAGE) * PAGE
        return made

    def pages(self, purpose: str, n_bytes: int) -> BlueprintArray:
        """Return uint8 [n_bytes] at an address of its own."""
        return self.empty(purpose, n_bytes, np.uint8)

    def zeros(self, purpose: str, shape: int | tuple[int, ...], dtype) -> BlueprintArray:
        return self.empty(purpose, shape, dtype)

    def upload(self, purpose: str, array: np.ndarray) -> BlueprintArray:
        """Return an array like a host array, whose contents are not read."""
        return self.empty(purpose, array.shape, array.dtype)

    def pinned(self, shape: int | tuple[int, ...], dtype) -> np.ndarray:
        """Return plain host memory, written by nobody until it is used."""
        return np.empty(shape, dtype)

    def mapped(self, shape: int | tuple[int, ...], dtype) -> BlueprintArray:
        return self.empty("mapped memory", shape, dtype)

    def register(self, array: np.ndarray) -> int:
        """Return a host array's own address."""
        return array.ctypes.data

    def unregister(self, array: np.ndarray) -> None:
        """Do nothing."""

    def move(self, purpose: str, other: str, n_bytes: int) -> None:
        """Account a part of what was taken for a purpose to another one."""
        self.taken[purpose] -= n_bytes
        self.taken[other] = self.taken.get(other, 0) + n_bytes

    def function_of(self, dispatcher, types: tuple) -> None:
        """Note that a kernel is needed; there is no function of it."""
        self.needed[dispatcher, types] = self.needed.get((dispatcher, types), 0) + 1

    def close(self) -> None:
        """Do nothing."""
