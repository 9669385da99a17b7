"""Twins of product kernels with a free order: what the contract's order costs.  For measuring only; nothing else may use them.

A twin of a packed product is the executor's own launch, made by the same factories with the arithmetic exchanged: plain sums and
products, which the compiler may contract, in place of rounded ones, and a plain sum in place of the eight-lane tree.  Copies,
unpacking, integer products and the tile are the same.  The twin of a float product has the same tile and copies, and one
accumulator for each output of a thread where the contract has two.  Their results differ from the contract's in the last bits.
Does not know: time.
"""

from functools import cache
from types import FunctionType, ModuleType, SimpleNamespace

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.floats import float_one_row
from strata.cuda.machine import on_cuda, seam
from strata.cuda.machine.addresses import global_address, shared_address, shared_four_floats, store_shared_float
from strata.cuda.machine.seam import Target, exchange_float, jit, kernel

ZERO = np.float32(0.0)
WARP_STEPS = (16, 8, 4, 2, 1)
ROOM = "strata.cuda."
LEFT_ALONE = tuple(ROOM + name for name in (
    "machine.seam", "machine.addresses", "packed.readers", "packed.staging", "card.launch", "card.device", "packed.coding", "machine.on_cuda",
))
"""Modules whose functions a twin shares with its original: what fetches and unpacks."""


@jit
def free_add(a, b):
    return a + b


@jit
def free_sub(a, b):
    return a - b


@jit
def free_mul(a, b):
    return a * b


@jit
def free_sum8(a, b, c, d, e, f, g, h):
    return a + b + c + d + e + f + g + h


EXCHANGED = ((seam.add, free_add), (seam.sub, free_sub), (seam.mul, free_mul), (on_cuda.tree8, free_sum8))
"""Fused multiply-adds stay as they are: a free order would take them too."""


class Freer:
    """Copies functions with the arithmetic exchanged, and whatever they use with it; each is copied once."""

    def __init__(self) -> None:
        self._copies: dict[int, object] = {}

    def of(self, value):
        """Return the copy of a function, a jitted helper or a module; the value itself where nothing of it changes."""
        for ours, free in EXCHANGED:
            if value is ours:
                return free
        if id(value) not in self._copies:
            self._copies[id(value)] = self._copy(value)
        return self._copies[id(value)]

    def _copy(self, value):
        python = getattr(value, "py_func", None) or getattr(value, "fn", None)
        if python is not None and _is_ours(python):
            return value if (free := self.of(python)) is python else jit(free)
        if hasattr(value, "cache_parameters") and _is_ours(value.__wrapped__):
            return value if (free := self.of(value.__wrapped__)) is value.__wrapped__ else cache(free)
        return self._function(value) if isinstance(value, FunctionType) and _is_ours(value) else value

    def _function(self, function: FunctionType):
        """Its copies count as this module's: kernels on disk are found by their functions' modules among other things."""
        names, before = _names_in(function.__code__), function.__globals__
        exchanged = {}
        for name in names & before.keys():
            free = self._module(before[name], names) if isinstance(before[name], ModuleType) else self.of(before[name])
            if free is not before[name]:
                exchanged[name] = free
        if not exchanged:
            return function
        return FunctionType(
            function.__code__, {**before, **exchanged, "__name__": __name__}, function.__name__, function.__defaults__, function.__closure__
        )

    def _module(self, module: ModuleType, names: set[str]):
        if not module.__name__.startswith(ROOM) or module.__name__ in LEFT_ALONE:
            return module
        exchanged = {name: self.of(vars(module)[name]) for name in names & vars(module).keys()}
        same = all(free is vars(module)[name] for name, free in exchanged.items())
        return module if same else SimpleNamespace(**{**vars(module), **exchanged})


def _is_ours(function) -> bool:
    module = getattr(function, "__module__", None) or ""
    return module.startswith(ROOM) and module not in LEFT_ALONE


def _names_in(code) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            found |= _names_in(constant)
    return found


@jit
def _free_meet(a0, a1, b0, b1, x0, x1, sums):
    sums[0] = sums[0] + a0 * x0 + a1 * x1
    sums[1] = sums[1] + b0 * x0 + b1 * x1


@cache
def free_one_row(type_name: str, n_in: int, target: Target):
    """Return the twin of `float_one_row` for one matrix; kernel(weights, n_out, x, out), launched in the same shape."""
    one = float_one_row
    send_weights, send_row = one.weight_sender(type_name, n_in, target), one.row_sender(n_in, target)
    advance, outputs, n_warps = one.row_products(type_name, n_in, _free_meet, target), one.OUTPUTS, one.THREADS // 32
    meeting_at = one.meeting_place(type_name, n_in)

    @kernel(one.THREADS)
    def run(weights, n_out, x, out):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        thread, n = np.int32(cuda.threadIdx.x), np.int32(np.int32(cuda.blockIdx.x) * outputs)
        first, second = send_weights(global_address(weights), shared, n, n_out, thread)
        send_row(global_address(x), shared + 0, thread)
        sums = cuda.local.array(outputs, np.float32)
        for o in range(outputs):
            sums[o] = ZERO
        advance(first, second, shared + 0, thread, sums)
        for o in range(outputs):
            for mask in WARP_STEPS:
                sums[o] = sums[o] + exchange_float(sums[o], np.int32(mask))
            if thread & 31 == 0:
                store_shared_float(shared + (meeting_at + 4 * n_warps * o + 4 * (thread >> 5)), sums[o])
        cuda.syncthreads()
        if thread < outputs and n + thread < n_out:
            a, b, c, d = shared_four_floats(shared + (meeting_at + 4 * n_warps * thread))
            out[n + thread] = a + b + c + d

    return run
