"""llama.cpp's row products beside ours: a library that is right is timed, one that multiplies something else or is none is refused."""

import ctypes.util
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numba import carray, cfunc, types

from strata.bench.llama_rows import LIBRARY, LlamaRows, Traits, find_library, open_library
from strata.bench.pool import Bank
from strata.cpu_pool.team import Team
from strata.errors import UsageError
from strata.formats.table import by_name

N_IN, N_ROWS, BLOCK_BYTES = 256, 96, 34
POINTER = types.CPointer(types.uint8)


@cfunc(types.void(POINTER, POINTER, types.int64))
def copy_floats(x, codes, n):
    """The coding of the stand-in: none."""
    for i in range(4 * n):
        codes[i] = x[i]


def row_product(factor: float):
    """A row product of Q8_0 rows whose scales are all one, times a factor."""

    @cfunc(types.void(types.int32, POINTER, types.int64, POINTER, types.int64, POINTER, types.int64, types.int32))
    def multiply(n, out, _, weights, __, codes, ___, ____):
        packed, x, total = carray(weights, n // 32 * BLOCK_BYTES).view(np.int8), carray(codes, 4 * n).view(np.float32), 0.0
        for i in range(n):
            total += packed[i // 32 * BLOCK_BYTES + 2 + i % 32] * x[i]
        carray(out, 4).view(np.float32)[0] = factor * total

    return multiply


def stand_in(multiply, name: bytes = b"q8_0") -> LlamaRows:
    traits = Traits(copy_floats.address, multiply.address, 8, 1)
    library = SimpleNamespace(ggml_get_type_traits_cpu=lambda type_id: SimpleNamespace(contents=traits))
    return LlamaRows(Path("stand-in"), library, SimpleNamespace(ggml_type_name=lambda type_id: name))


def packed_rows() -> np.ndarray:
    blocks = np.random.default_rng(3).integers(-128, 128, (N_ROWS * N_IN // 32, BLOCK_BYTES), dtype=np.int8).view(np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    return blocks.reshape(-1)


def seconds_of(llama: LlamaRows) -> float | None:
    x = np.random.default_rng(4).standard_normal(N_IN).astype(np.float32)
    with Team(2) as team:
        return llama.seconds(by_name("Q8_0"), team.control, packed_rows(), N_IN, x, time.perf_counter)


def test_a_library_that_multiplies_the_same_rows_is_timed():
    assert seconds_of(stand_in(row_product(1.0))) > 0


def test_a_library_that_multiplies_something_else_is_refused():
    with pytest.raises(UsageError, match="its Q8_0 product is another one"):
        seconds_of(stand_in(row_product(1.2)))


def test_a_format_that_a_library_does_not_know_is_left_out():
    assert seconds_of(stand_in(row_product(1.0), b"NONE")) is None
    with Team(1) as team:
        assert Bank(by_name("Q8_0"), team.control, 1 << 20).llama_seconds(None, time.perf_counter) is None


def test_what_is_named_must_be_there(tmp_path):
    with pytest.raises(UsageError, match=f"{LIBRARY} is not there"):
        find_library(str(tmp_path))
    (tmp_path / LIBRARY).write_bytes(b"no library")
    assert find_library(str(tmp_path)) == tmp_path / LIBRARY
    with pytest.raises(UsageError, match="llama-cpp"):
        open_library(tmp_path / LIBRARY)


def test_a_library_without_these_functions_is_refused():
    with pytest.raises(UsageError, match="ggml_cpu_init"):
        open_library(Path(ctypes.util.find_library("m") or "libm.so.6"))
