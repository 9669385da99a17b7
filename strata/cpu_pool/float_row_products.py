"""Matrix products with float weights in vectors, lanes in registers: what `strata.host.float_products` says, bit by bit.

One activation row meets the weights as they are stored.  Several meet a tile of weight rows that was widened to float32
once; long rows two by two (`float_sums.four_sums`), rows of 64 values with the activation row in registers
(`float_short_rows`).  Rows of a multiple of eight values only; any CPU.  Does not know: what the products are for.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.float_short_rows import SHORT, build_short_sums
from strata.cpu_pool.float_sums import BUFFER_BYTES, FLOAT_BYTES, build_one_sum, four_sums
from strata.cpu_pool.fork import fork
from strata.cpu_pool.lane_memory import address_of, keep_alive, load_floats, store_floats, widen_brains, widen_halves
from strata.cpu_pool.pages import LINE_BYTES, first_line
from strata.numerics.cpu import jit, kernel

READERS = {"BF16": (widen_brains, 2), "F16": (widen_halves, 2), "F32": (load_floats, FLOAT_BYTES)}
"""Float types -> (helper that reads eight, bytes of one)."""
GRAIN_PRODUCTS, TILE_VALUES = 65536, 4096
LONG = 512
"""Values from which on four sums at a time are quicker than one."""

one_widened_sum, short_widened_sums = build_one_sum(load_floats, FLOAT_BYTES), build_short_sums(load_floats, FLOAT_BYTES)


@jit
def _short_tile(tile, n_rows, n_weights, x, to, n_out):
    """Fill a tile's columns of out from rows of 64 values; tile, x, to addresses, to that of the first result."""
    for row in range(n_rows):
        short_widened_sums(tile, n_weights, x + row * SHORT * FLOAT_BYTES, to + row * n_out * FLOAT_BYTES)


@jit
def _middle_tile(tile, n_rows, first, last, x, n_in, out):
    """Fill out[:, first:last] sum by sum; tile, x addresses."""
    row_bytes = n_in * FLOAT_BYTES
    for row in range(n_rows):
        for n in range(first, last):
            out[row, n] = one_widened_sum(tile + (n - first) * row_bytes, x + row * row_bytes, n_in)


@jit
def _long_tile(tile, n_rows, first, last, x, n_in, out, buffer):
    """Fill out[:, first:last] four sums at a time; the last row of an odd count is its own partner."""
    row_bytes = n_in * FLOAT_BYTES
    for row in range(0, n_rows, 2):
        next_row = row + 1 if row + 1 < n_rows else row
        p, q = x + row * row_bytes, x + next_row * row_bytes
        for n in range(first, last, 2):
            next_n = n + 1 if n + 1 < last else n
            w, z = tile + (n - first) * row_bytes, tile + (next_n - first) * row_bytes
            out[row, n], out[next_row, n], out[row, next_n], out[next_row, next_n] = four_sums(w, z, p, q, n_in, buffer)


@cache
def float_row_product(type_name: str):
    """Return kernel(control, weights, x, out): weights uint16 or float32 [n_out, n_in], x float32 [rows, n_in], out [rows, n_out].

    n_in is a multiple of 8; arrays are contiguous.
    """
    read, size = READERS[type_name]
    one_sum, short_sums = build_one_sum(read, size), build_short_sums(read, size)

    @jit
    def one_row(weights, begin, end, x, n_in, out):
        first = weights + begin * n_in * size
        if n_in == SHORT:
            short_sums(first, end - begin, x, address_of(out) + begin * FLOAT_BYTES)
            return
        for n in range(begin, end):
            out[0, n] = one_sum(first + (n - begin) * n_in * size, x, n_in)

    @jit
    def several_rows(weights, begin, end, x, n_rows, n_in, out, tile_rows):
        tile = np.empty(tile_rows * n_in * FLOAT_BYTES + BUFFER_BYTES + LINE_BYTES, np.uint8)
        buffer = first_line(tile)
        t = buffer + BUFFER_BYTES
        for first in range(begin, end, tile_rows):
            last = first + tile_rows if first + tile_rows < end else end
            for i in range(0, (last - first) * n_in, 8):
                store_floats(t + FLOAT_BYTES * i, read(weights + (first * n_in + i) * size))
            if n_in == SHORT:
                _short_tile(t, n_rows, last - first, x, address_of(out) + first * FLOAT_BYTES, out.shape[1])
            elif n_in < LONG:
                _middle_tile(t, n_rows, first, last, x, n_in, out)
            else:
                _long_tile(t, n_rows, first, last, x, n_in, out, buffer)
        keep_alive(tile)

    @jit
    def body(begin, end, arguments):
        weights, x, out, tile_rows = arguments
        n_rows, n_in = x.shape
        if n_rows == 1:
            one_row(address_of(weights), begin, end, address_of(x), n_in, out)
        else:
            several_rows(address_of(weights), begin, end, address_of(x), n_rows, n_in, out, tile_rows)

    @kernel
    def run(control, weights, x, out):
        tile_rows = 1 + TILE_VALUES // weights.shape[1]
        grain = 1 + GRAIN_PRODUCTS // x.size
        if x.shape[0] > 1 and grain < tile_rows:
            grain = tile_rows
        fork(control, body, weights.shape[0], grain, (weights, x, out, tile_rows))

    return run
