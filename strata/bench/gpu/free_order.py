"""Twins of product kernels with a free order: what the contract's order costs.  For measuring only; nothing else may use them.

A twin of a packed product is the executor's own kernel, built from the same factories with the arithmetic exchanged: plain
products and sums that the compiler may contract, and sums of lanes in the hardware's order.  Copies, unpacking, integer products
and the tile are the same.  The twin of a float product has the same tile and copies, and one accumulator a thread where the
contract has four.  Their results differ from the contract's in the last bits.  Does not know: time.
"""

from functools import cache
from types import FunctionType

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda import float_rows, row_parts, rows, tile_kernels, tile_parts
from strata.cuda.addresses import copier, global_address, shared_address, shared_four_floats
from strata.cuda.seam import Target, copies, exchange_float, jit, kernel
from strata.cuda.tiles import CHUNK, Tile
from strata.errors import DeviceError

ZERO = np.float32(0.0)
WARP_STEPS = (16, 8, 4, 2, 1)


@jit
def free_mul(a, b):
    return a * b


@jit
def free_fma(a, b, c):
    return a * b + c


@jit
def free_tree_of_lanes(total):
    total = total + exchange_float(total, np.int32(1))
    total = total + exchange_float(total, np.int32(2))
    return total + exchange_float(total, np.int32(4))


@jit
def free_sum8(a, b, c, d, e, f, g, h):
    return a + b + c + d + e + f + g + h


def with_helpers(function, **helpers):
    """Return a function whose module has other helpers of some names; raises DeviceError where it uses none of a name.

    What it makes counts as this module's: kernels on disk are found by their functions' modules among other things.
    """
    plain = getattr(function, "__wrapped__", function)
    missing = sorted(name for name in helpers if name not in plain.__code__.co_names and name not in _inner_names(plain.__code__))
    if missing:
        raise DeviceError(f"the twin of {plain.__qualname__}", f"the kernel no longer uses {', '.join(missing)}", "write the twin anew")
    return FunctionType(plain.__code__, {**plain.__globals__, **helpers, "__name__": __name__}, plain.__name__, plain.__defaults__, plain.__closure__)


def _inner_names(code) -> set[str]:
    found: set[str] = set()
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            found |= set(constant.co_names) | _inner_names(constant)
    return found


@cache
def dense_rows(type_id: int, n_rows: int, target: Target):
    """Return the twin of `rows.dense_rows`."""
    step = with_helpers(row_parts.group_step, fma=free_fma, mul=free_mul)
    products = with_helpers(rows._warp_products, group_step=step, tree_of_lanes=free_tree_of_lanes)
    return with_helpers(rows.dense_rows, _warp_products=products)(type_id, n_rows, target)


@cache
def dense_tiles(type_id: int, target: Target, tile: Tile = CHUNK):
    """Return the twin of `tile_kernels.dense_tiles`."""
    groups = with_helpers(tile_parts.group_products, fma=free_fma, mul=free_mul)
    meeting = with_helpers(tile_parts.lanes_meeting, tree8=free_sum8)
    product = with_helpers(tile_kernels._tile_product, group_products=groups, lanes_meeting=meeting)
    return with_helpers(tile_kernels.dense_tiles, _tile_product=product)(type_id, tile, target)


@cache
def one_float_row(type_name: str, target: Target):
    """Return the twin of `float_rows.float_rows` for one row and one output a block, rows of a multiple of 16 bytes.

    kernel(weights, n_in, n_out, pitch, x, out); shared memory as there.
    """
    widen_four, value_bytes = float_rows.WIDEN_FOUR[type_name]
    n_threads = float_rows.THREADS_PER_OUTPUT
    move = copies(target, 0)
    copy_weights, copy_row = copier(16, 0, 0, target, once=True), copier(16, 0, 0, target)
    commit, wait_all = move.commit, move.wait
    step = 4 * n_threads

    @kernel(n_threads)
    def run(weights, n_in, n_out, pitch, x, out):
        shared, floats = shared_address(cuda.shared.array(0, types.uint8)), cuda.shared.array(0, types.float32)
        place, row = global_address(weights), global_address(x)
        thread, n = np.int32(cuda.threadIdx.x), np.int32(cuda.blockIdx.x)
        start, slot = np.int64(n) * n_in * value_bytes, shared + 4 * np.int64(n_in)
        for piece in range(thread, (np.int64(n_in) * value_bytes) >> 4, n_threads):
            copy_weights(slot + 16 * piece, place + (start + 16 * piece))
        for piece in range(thread, np.int64(n_in) >> 2, n_threads):
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
        meeting = np.int64(n_in) + (np.int64(pitch) >> 2)
        if thread & 31 == 0:
            floats[meeting + (thread >> 5)] = total
        cuda.syncthreads()
        if thread == 0 and n < n_out:
            out[n] = floats[meeting] + floats[meeting + 1]

    return run
