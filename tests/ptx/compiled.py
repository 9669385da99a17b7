"""Kernels compiled without a card: PTX from NVVM, a cubin and its resources from nvJitLink.

Numba asks the current card for its compute capability when a device function is compiled; here a stand-in answers.
Does not know: which kernels there are (catalogue.py).
"""

import importlib.util
import re
from dataclasses import dataclass
from types import SimpleNamespace

CAPABILITIES = ((7, 5), (8, 6), (9, 0), (12, 0))


def why_no_compiler() -> str | None:
    """Return the reason why kernels cannot be compiled here, or None."""
    if importlib.util.find_spec("numba_cuda") is None:
        return "the package numba-cuda is not installed (extra [cuda])"
    try:
        from numba.cuda.cudadrv.nvvm import NVVM

        NVVM()
    except Exception as error:  # whatever the search for the library raises
        return f"NVVM is not installed (extra [cuda]): {' '.join(str(error).split())[:120]}"
    return None


@dataclass(frozen=True, slots=True)
class Resources:
    """What a thread of a compiled kernel uses: registers, bytes of stack, bytes of spill stores and loads."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def compile_ptx(dispatcher, signature: tuple, capability: tuple[int, int]) -> str:
    """Return the PTX of a kernel for one capability."""
    import numba.cuda.dispatcher
    from numba import cuda

    before = numba.cuda.dispatcher.get_current_device
    numba.cuda.dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        bounds = dispatcher.targetoptions.get("launch_bounds")
        return cuda.compile_ptx(dispatcher.py_func, signature, cc=capability, launch_bounds=bounds)[0]
    finally:
        numba.cuda.dispatcher.get_current_device = before


def link(ptx: str, capability: tuple[int, int]) -> tuple[bytes, Resources]:
    """Return the cubin of a kernel's PTX and its resources."""
    from cuda.bindings import nvjitlink

    handle = nvjitlink.create(2, [f"-arch=sm_{capability[0]}{capability[1]}", "-verbose"])
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
    return bytes(cubin), _resources(log.decode(errors="replace"))


def _resources(log: str) -> Resources:
    numbers = []
    for pattern in (r"Used (\d+) registers", r"(\d+) bytes stack frame", r"(\d+) bytes spill stores", r"(\d+) bytes spill loads"):
        found = re.findall(pattern, log)
        if not found:
            raise ValueError(f"no {pattern!r} in the linker's log: {log[:500]}")
        numbers.append(max(map(int, found)))
    return Resources(*numbers)


FLOAT_OPERATION = re.compile(r"^\s*(?:@!?%p\d+\s+)?((?:add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh)\.[\w.]*f(?:16|32|64)\w*)", re.M)
FORBIDDEN = re.compile(r"\.approx|\.ftz|\.sat\.f32|(?<!\w)(?:atom|red)\.[\w.:]*f(?:16|32|64)|\.full\.f32")


def unrounded_operations(ptx: str) -> list[str]:
    """Return float instructions of a kernel that the contract does not allow: not `.rn` on float32, or approximate."""
    bad = [name for name in FLOAT_OPERATION.findall(ptx) if ".rn" not in name.split(".f32")[0] or not name.endswith("f32")]
    return sorted({*bad, *FORBIDDEN.findall(ptx)})
