"""Launches: a kernel, its grid and its arguments, packed once and sent as often as one likes.

Numba's own launch costs tens of microseconds of argument handling; a `Launch` is one driver call.  It keeps its arguments
alive and knows their addresses, so that a captured graph can tell whether a buffer moved (graphs.py).  Kernels are compiled
and loaded when a launch is prepared, never when it is sent: nothing is compiled inside a capture.  `programmatic` launches
may start before the kernel ahead of them has ended, up to their `wait_for_dependency`.  Does not know: what kernels do.
"""

import threading
from dataclasses import dataclass

import numpy as np

from strata.cuda.card.arguments import cells_of, type_of
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.found import _checked
from strata.cuda.machine.seam import SIMULATED

BUILDING = threading.Lock()
"""Held by whoever prepares launches: kernels are compiled and loaded by one thread at a time."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Grid (x, y), threads per block, dynamic shared memory in bytes."""

    grid: tuple[int, int]
    n_threads: int
    shared_bytes: int = 0


class Launch:
    """One prepared launch; `go` sends it to a stream."""

    def __init__(self, device: CudaDevice, dispatcher, shape: Shape, arguments: tuple, programmatic: bool = False) -> None:
        self.device, self.dispatcher, self.shape, self.arguments = device, dispatcher, shape, arguments
        self.programmatic = False
        if not SIMULATED:
            self._pack()
        if programmatic:
            self.follow()

    def follow(self) -> None:
        """Let the launch start before the kernel ahead of it has ended, where the card can: it must not be a program's first."""
        self.programmatic = self.device.target.dependent_launch
        if SIMULATED or not self.programmatic:
            return
        from cuda.bindings import driver

        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        self._config.attrs, self._config.numAttrs = [attribute], 1
        self.device.prefer_shared(self.function)

    def _pack(self) -> None:
        from cuda.bindings import driver

        self.function = self.device.function_of(self.dispatcher, tuple(type_of(a) for a in self.arguments))
        self._cells = cells_of(self.arguments)
        self._pointers = self._cells.ctypes.data + 8 * np.arange(self._cells.size, dtype=np.uint64)
        self.device.allow_shared(self.function, self.shape.shared_bytes)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = *self.shape.grid, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self.shape.n_threads, 1, 1
        config.sharedMemBytes = self.shape.shared_bytes
        self._config = config

    @property
    def addresses(self) -> tuple[int, ...]:
        """The kernel's parameters as integers: equal exactly where a replay would do the same."""
        return tuple(self._cells.tolist()) if not SIMULATED else tuple(id(a) for a in self.arguments)

    def go(self, stream=None) -> None:
        """Send the launch to a stream (the device's own by default); nothing where the device is a blueprint."""
        if self.device.is_blueprint:
            return
        stream = stream or self.device.stream
        if SIMULATED:
            shape = self.shape
            self.dispatcher[shape.grid, shape.n_threads, 0, shape.shared_bytes](*self.arguments)
            return
        from cuda.bindings import driver

        self._config.hStream = int(stream.handle)
        _checked(driver.cuLaunchKernelEx(self._config, self.function, self._pointers.ctypes.data, 0))


def send(launches, stream=None) -> None:
    """Send launches in order."""
    for launch in launches:
        launch.go(stream)
