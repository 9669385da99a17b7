"""The same expert rows through llama.cpp's CPU kernels, where its library can be had: one row's product with one activation row.

The library is `libggml-cpu` of a llama.cpp build or of the package llama-cpp-python; its own row product (`vec_dot`) and coding of
activations are called for every row of a bank, split over a team's threads.  What it returns is compared with ours first: a library
that multiplies something else is refused.  Nothing of it enters the engine.  Does not know: how times are shown.
"""

import ctypes
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from strata.cpu_pool.fork import fork
from strata.cpu_pool.lane_memory import address_of
from strata.errors import UsageError
from strata.formats.contract import WeightFormat
from strata.formats.unpack import dequantise
from strata.numerics.cpu import jit, kernel

PACKAGE, FOLDER = "llama_cpp", "lib"
LIBRARY, BASE = "libggml-cpu.so", "libggml-base.so"
MOST_APART = 0.05
"""Relative distance between its products and exact ones: its activations are coded in eight bits too."""
LONGEST_CODE = 512
"""Bytes of a coded block of activations, and more."""
GRAIN_ROWS = 32
BYTES, INT, WORD = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)
ROW_PRODUCT = ir.FunctionType(ir.VoidType(), [INT, BYTES, WORD, BYTES, WORD, BYTES, WORD, INT])


class Traits(ctypes.Structure):
    """`ggml_type_traits_cpu` of ggml-cpu.h."""

    _fields_ = (("code", ctypes.c_void_p), ("multiply", ctypes.c_void_p), ("code_type", ctypes.c_int), ("n_rows", ctypes.c_int64))


@intrinsic
def multiply_row(typing_context, function, n, out, weights, codes):
    """Call the row product at an address: int32 n, addresses of one float32, of a packed row, and of coded activations."""

    def emit(context, builder, signature, values):
        product = builder.inttoptr(values[0], ROW_PRODUCT.as_pointer())
        out, weights, codes = (builder.inttoptr(value, BYTES) for value in values[2:])
        nothing = ir.Constant(WORD, 0)
        builder.call(product, [values[1], out, nothing, weights, nothing, codes, nothing, ir.Constant(INT, 1)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int32, types.int64, types.int64, types.int64), emit


@jit
def _rows(begin, end, arguments):
    function, n_in, row_bytes, raw, codes, out = arguments
    for row in range(begin, end):
        multiply_row(function, n_in, address_of(out) + 4 * row, address_of(raw) + row * row_bytes, address_of(codes))


@kernel
def multiply_rows(control, function, n_in, row_bytes, raw, codes, out):
    """out float32 [rows] = the products of packed rows in raw uint8 with one coded activation row."""
    fork(control, _rows, out.size, GRAIN_ROWS, (function, np.int32(n_in), row_bytes, raw, codes, out))


@dataclass(frozen=True, slots=True)
class LlamaRows:
    """An open library."""

    path: Path
    library: ctypes.CDLL
    base: ctypes.CDLL

    def seconds(self, form: WeightFormat, control: np.ndarray, raw: np.ndarray, n_in: int, x: np.ndarray, clock: Callable[[], float]) -> float | None:
        """Return the seconds of all rows in raw uint8 with x float32 [n_in]; None where the library has no product for the format."""
        if not self._knows(form):
            return None
        traits = self._traits(form.type_id)
        if not traits.multiply or not traits.code_type:
            return None
        codes, out = self._coded(traits.code_type, x), np.empty(raw.size * form.block_weights // form.block_bytes // n_in, np.float32)
        work = traits.multiply, n_in, n_in // form.block_weights * form.block_bytes, raw, codes, out
        if not out.size or not self._is_right(form, control, work, x):
            raise UsageError(f"llama-cpp={self.path}", f"its {form.name} product is another one", "name the library of a newer llama.cpp, or leave it out")
        started = clock()
        multiply_rows(control, *work)
        return clock() - started

    def _knows(self, form: WeightFormat) -> bool:
        """Whether the library's type of this number has the format's name: an older one has fewer types."""
        return self.base.ggml_type_name(form.type_id).decode().upper() == form.name.upper()

    def _traits(self, type_id: int) -> Traits:
        return self.library.ggml_get_type_traits_cpu(type_id).contents

    def _coded(self, code_type: int, x: np.ndarray) -> np.ndarray:
        """Return an activation row in the library's own coding."""
        codes = np.zeros(x.size * 4 + LONGEST_CODE, np.uint8)
        code = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(self._traits(code_type).code)
        code(x.ctypes.data, codes.ctypes.data, x.size)
        return codes

    def _is_right(self, form: WeightFormat, control: np.ndarray, work: tuple, x: np.ndarray) -> bool:
        """Whether the first rows' products are those of the weights, within what coded activations allow."""
        function, n_in, row_bytes, raw, codes, out = work
        n = min(out.size, GRAIN_ROWS)
        multiply_rows(control, function, n_in, row_bytes, raw, codes, out[:n])
        exact = dequantise(form, raw[: n * row_bytes], n * n_in).reshape(n, n_in).astype(np.float64) @ x.astype(np.float64)
        return bool(np.linalg.norm(out[:n] - exact) <= MOST_APART * np.linalg.norm(exact))


def find_library(path: str) -> Path | None:
    """Return the library that is named (a file, or a folder that has it), or the installed package's; None where there is none.

    Raises UsageError where a named one is not there.
    """
    if path:
        found = Path(path) / LIBRARY if Path(path).is_dir() else Path(path)
        if not found.is_file():
            raise UsageError(f"llama-cpp={path}", f"{found} is not there", f"name a {LIBRARY} or its folder")
        return found
    package = importlib.util.find_spec(PACKAGE)
    folders = [] if package is None else package.submodule_search_locations or []
    found = [Path(folder) / FOLDER / LIBRARY for folder in folders]
    return next((item for item in found if item.is_file()), None)


def open_library(path: Path) -> LlamaRows:
    """Open a library with the one beside it that it needs; raises UsageError where that fails."""
    try:
        beside = path.parent / BASE
        base = ctypes.CDLL(str(beside), ctypes.RTLD_GLOBAL) if beside.is_file() else ctypes.CDLL(str(path))
        library = ctypes.CDLL(str(path))
        library.ggml_cpu_init()
        base.ggml_type_name.restype = ctypes.c_char_p
        library.ggml_get_type_traits_cpu.restype = ctypes.POINTER(Traits)
    except (OSError, AttributeError) as error:
        raise UsageError(f"llama-cpp={path}", str(error).splitlines()[0], f"name the {LIBRARY} of a llama.cpp build") from error
    return LlamaRows(path, library, base)
