"""Twins of product kernels with a free order: what the contract's order costs.  For measuring only; nothing else may use them.

A twin of a packed product is the executor's own launch, made by the same factories with the arithmetic exchanged: plain sums and
products, which the compiler may contract, in place of rounded ones, and a plain sum in place of the eight-lane tree.  Copies,
unpacking, integer products and the tile are the same.  The twin of a float product has the same tile and copies, and one
accumulator a thread where the contract has four.  Their results differ from the contract's in the last bits.
Does not know: time.
"""

from functools import cache
from types import FunctionType, ModuleType, SimpleNamespace

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.floats import float_rows
from strata.cuda.machine import on_cuda, seam
from strata.cuda.machine.addresses import copier, global_address, shared_address, shared_four_floats
from strata.cuda.machine.seam import Target, copies, exchange_float, jit, kernel

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


@cache
def one_float_row(type_name: str, n_outputs: int, target: Target):
    """Return the twin of a float product of one row with long weight rows of a multiple of 16 bytes: n_outputs outputs a block.

    kernel(weights, n_in, n_out, pitch, x, out); shared memory as `float_rows.shape_of` gives it.
    """
    widen_four, value_bytes = float_rows.WIDEN_FOUR[type_name]
    n_threads = float_rows.THREADS_PER_OUTPUT
    move = copies(target, 0)
    copy_weights, copy_row = copier(16, 0, 0, target, once=True), copier(16, 0, 0, target)
    commit, wait_all = move.commit, move.wait
    step = 4 * n_threads

    @kernel(n_threads * n_outputs)
    def run(weights, n_in, n_out, pitch, x, out):
        shared, floats = shared_address(cuda.shared.array(0, types.uint8)), cuda.shared.array(0, types.float32)
        place, row = global_address(weights), global_address(x)
        thread, which = np.int32(cuda.threadIdx.x) & 63, np.int32(cuda.threadIdx.x) >> 6
        n = np.int32(np.int32(cuda.blockIdx.x) * n_outputs + which)
        start = np.int64(n if n < n_out else n_out - 1) * n_in * value_bytes
        slot = shared + (4 * np.int64(n_in) + which * pitch)
        for piece in range(thread, (np.int64(n_in) * value_bytes) >> 4, n_threads):
            copy_weights(slot + 16 * piece, place + (start + 16 * piece))
        for piece in range(np.int32(cuda.threadIdx.x), np.int64(n_in) >> 2, n_threads * n_outputs):
            copy_row(shared + 16 * piece, row + 16 * piece)
        commit()
        wait_all()
        cuda.syncthreads()
        total = ZERO
        for i in range(4 * thread, n_in, step):
            w0, w1, w2, w3 = widen_four(slot + i * value_bytes)
            x0, x1, x2, x3 = shared_four_floats(shared + 4 * i)
            total = total + w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3
        for mask in WARP_STEPS:
            total = total + exchange_float(total, np.int32(mask))
        meeting = np.int64(n_in) + (np.int64(n_outputs * pitch) >> 2) + 2 * which
        if thread & 31 == 0:
            floats[meeting + (thread >> 5)] = total
        cuda.syncthreads()
        if thread == 0 and n < n_out:
            out[n] = floats[meeting] + floats[meeting + 1]

    return run
