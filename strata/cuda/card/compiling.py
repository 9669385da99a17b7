"""Kernels compiled without a card: PTX by NVVM, a cubin and what it uses by nvJitLink.

One kernel's PTX is linked by itself, without link-time optimisation, for exactly one compute capability: what is rounded in
the PTX stays rounded in machine code.  Numba asks the current card for its capability when a device function is compiled;
here a stand-in answers, on a machine with a card too.  Numba compiles in one thread at a time.
Does not know: folders, cards.
"""

import importlib.util
import re
import threading
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from uuid import uuid4

COMPILING = threading.RLock()
"""Held while Numba compiles for a stand-in."""
ENTRY = re.compile(r"^\s*\.visible\s+\.entry\s+([\w$.]+)\s*\(", re.M)


@dataclass(frozen=True, slots=True)
class Resources:
    """What a thread of a compiled kernel uses: registers, bytes of stack, bytes of spill stores and loads."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code of one kernel for one capability: the cubin, its entry's name, and which compilers made it."""

    cubin: bytes
    entry: str
    resources: Resources
    made_by: tuple[str, ...]


def why_no_compiler() -> str | None:
    """Return the reason why kernels cannot be compiled without a card, or None."""
    if importlib.util.find_spec("numba_cuda") is None:
        return "the package numba-cuda is not installed (extra [cuda])"
    try:
        compilers()
    except Exception as error:  # whatever the search for the libraries raises
        return f"NVVM or nvJitLink is not installed (extra [cuda]): {' '.join(str(error).split())[:120]}"
    return None


@cache
def compilers() -> tuple[str, ...]:
    """Return the versions that decide on a cubin: Numba, numba-cuda, llvmlite, and the two libraries with size and date.

    Raises whatever the search for a library raises where one is missing.
    """
    import llvmlite
    import numba
    import numba_cuda
    from cuda.bindings import nvjitlink
    from numba.cuda.cudadrv.nvvm import NVVM

    linker, nvvm = nvjitlink.version(), NVVM().get_version()
    return (
        f"numba {numba.__version__}", f"numba-cuda {numba_cuda.__version__}", f"llvmlite {llvmlite.__version__}",
        f"NVVM {'.'.join(map(str, nvvm))} {_library('nvvm')}", f"nvJitLink {'.'.join(map(str, linker))} {_library('nvJitLink')}",
    )


def _library(name: str) -> str:
    """Return file name, size and date of a library of CUDA: its version numbers do not tell two builds apart."""
    from pathlib import Path

    from cuda.pathfinder import load_nvidia_dynamic_lib

    path = Path(load_nvidia_dynamic_lib(name).abs_path).resolve()
    found = path.stat()
    return f"({path.name}, {found.st_size} bytes, {found.st_mtime_ns})"


def compile_ptx(dispatcher, types: tuple, capability: tuple[int, int]) -> str:
    """Return the PTX of a kernel for argument types and one capability."""
    import numba.cuda.dispatcher
    from numba import cuda

    with COMPILING:
        before = numba.cuda.dispatcher.get_current_device
        numba.cuda.dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
        try:
            bounds = dispatcher.targetoptions.get("launch_bounds")
            return cuda.compile_ptx(dispatcher.py_func, types, cc=capability, launch_bounds=bounds)[0]
        finally:
            numba.cuda.dispatcher.get_current_device = before


def link(ptx: str, capability: tuple[int, int]) -> tuple[bytes, Resources]:
    """Return the cubin of a kernel's PTX and its resources.

    Beside a driver the library may answer from a cache of its own, where another process linked the same text, and its log tells
    less then: a comment that no other text has makes it look again.
    """
    cubin, log = _linked(ptx, capability)
    resources = _resources(log)
    if resources is None:
        cubin, log = _linked(f"{ptx}\n// {uuid4().hex}\n", capability)
        resources = _resources(log)
    if resources is None:
        raise ValueError(f"the linker's log does not tell what a kernel uses: {log[:500]}")
    return cubin, resources


def _linked(ptx: str, capability: tuple[int, int]) -> tuple[bytes, str]:
    """Return the cubin of a PTX and the linker's log."""
    from cuda.bindings import nvjitlink

    handle = nvjitlink.create(2, [f"-arch=sm_{capability[0]}{capability[1]}", "-verbose", "-no-cache"])
    try:
        data = ptx.encode()
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "kernel")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    finally:
        nvjitlink.destroy(handle)
    return bytes(cubin), log.decode(errors="replace")


def _resources(log: str) -> Resources | None:
    """Return the numbers of a log, None where one is missing: of a cubin from a cache there is only a line with registers and stack."""
    numbers = []
    for pattern in (r"Used (\d+) registers", r"(\d+) bytes stack frame", r"(\d+) bytes spill stores", r"(\d+) bytes spill loads"):
        found = re.findall(pattern, log)
        if not found:
            return None
        numbers.append(max(map(int, found)))
    return Resources(*numbers)


def compile_kernel(dispatcher, types: tuple, capability: tuple[int, int]) -> Compiled:
    """Compile a kernel for argument types and one capability."""
    ptx = compile_ptx(dispatcher, types, capability)
    entries = ENTRY.findall(ptx)
    if len(entries) != 1:
        raise ValueError(f"{dispatcher.py_func.__qualname__}: its PTX has {len(entries)} entries, where one is wanted")
    cubin, resources = link(ptx, capability)
    return Compiled(cubin, entries[0], resources, compilers())
