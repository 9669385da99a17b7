"""Products of float weight rows with float32 rows, lanes in registers: what `strata.host.float_products` says, in vectors.

Element i belongs to lane i mod 256, so 32 vectors of eight lanes are 32 chains.  A quarter of the eight-lane vectors of
the halving tree is made at a time, from four chains that stay in registers:

    quarter v (0..7) = (chain v + chain v+16) + (chain v+8 + chain v+24)
    sum = the eight-lane tree of  ((q0 + q4) + (q2 + q6)) + ((q1 + q5) + (q3 + q7))

A row of at most 64 values has chains 0..7 of one step each; the others are +0, and adding +0 twice is adding it once.
Rows of a multiple of eight values only; any CPU.  Does not know: what the products are for.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.float_blocks import BUFFER_BYTES, four_sums
from strata.cpu_pool.float_short_rows import SHORT, build_short_sums
from strata.cpu_pool.fork import fork
from strata.cpu_pool.lane_memory import address_of, keep_alive, load_floats, store_floats, widen_brains, widen_halves
from strata.cpu_pool.lane_moves import sum_lanes
from strata.cpu_pool.lanes import fma, splat_float
from strata.cpu_pool.pages import first_line
from strata.numerics.cpu import jit, kernel
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
FLOAT_BYTES = 4
GRAIN_PRODUCTS, TILE_VALUES = 32768, 4096
LONG = 512
READERS = {"BF16": (widen_brains, 2), "F16": (widen_halves, 2), "F32": (load_floats, 4)}


def _build_one_sum(read, size):
    """Compile `one_sum(weights, x, n) -> float32`; weights of `size` bytes that `read(at)` gives eight of; addresses."""

    @jit
    def quarter(v, weights, x, n):
        a = b = c = d = splat_float(ZERO)
        i = 8 * v
        while i + 192 < n:
            w, u = weights + size * i, x + FLOAT_BYTES * i
            a, b = fma(read(w), load_floats(u), a), fma(read(w + 64 * size), load_floats(u + 256), b)
            c, d = fma(read(w + 128 * size), load_floats(u + 512), c), fma(read(w + 192 * size), load_floats(u + 768), d)
            i += WIDE
        w, u = weights + size * i, x + FLOAT_BYTES * i
        if i < n:
            a = fma(read(w), load_floats(u), a)
        if i + 64 < n:
            b = fma(read(w + 64 * size), load_floats(u + 256), b)
        if i + 128 < n:
            c = fma(read(w + 128 * size), load_floats(u + 512), c)
        return (a + c) + (b + d)

    @jit
    def one_sum(weights, x, n):
        even = (quarter(0, weights, x, n) + quarter(4, weights, x, n)) + (quarter(2, weights, x, n) + quarter(6, weights, x, n))
        odd = (quarter(1, weights, x, n) + quarter(5, weights, x, n)) + (quarter(3, weights, x, n) + quarter(7, weights, x, n))
        return sum_lanes(even + odd)

    return one_sum


@cache
def float_row_product(type_name: str):
    """Return kernel(control, weights, x, out): weights uint16 or float32 [n_out, n_in], x float32 [rows, n_in], out [rows, n_out].

    n_in is a multiple of 8; arrays are contiguous.
    """
    read, size = READERS[type_name]
    one_sum = _build_one_sum(read, size)

    short_sums, short_widened_sums = build_short_sums(read, size), build_short_sums(load_floats, FLOAT_BYTES)
    one_widened_sum = _build_one_sum(load_floats, FLOAT_BYTES)

    @jit
    def widen_rows(first, n_values, to):
        """Widen n_values weights at `first`, a multiple of eight, to float32 at `to`."""
        for i in range(0, n_values, 8):
            store_floats(to + FLOAT_BYTES * i, read(first + size * i))

    @jit
    def body(begin, end, arguments):
        weights, x, out, tile_rows = arguments
        n_rows, n_in = x.shape
        row_bytes = n_in * FLOAT_BYTES
        w, u = address_of(weights), address_of(x)
        if n_rows == 1:
            if n_in == SHORT:
                short_sums(w + begin * n_in * size, end - begin, u, address_of(out) + begin * FLOAT_BYTES)
                return
            for n in range(begin, end):
                out[0, n] = one_sum(w + n * n_in * size, u, n_in)
            return
        tile, buffer = np.empty(tile_rows * n_in + 16, np.float32), np.empty(BUFFER_BYTES + 64, np.uint8)
        t, spare = first_line(tile), first_line(buffer)
        for first in range(begin, end, tile_rows):
            last = first + tile_rows if first + tile_rows < end else end
            widen_rows(w + first * n_in * size, (last - first) * n_in, t)
            if n_in == SHORT:
                for row in range(n_rows):
                    short_widened_sums(t, last - first, u + row * row_bytes, address_of(out) + (row * out.shape[1] + first) * FLOAT_BYTES)
                continue
            if n_in < LONG:
                for row in range(n_rows):
                    for n in range(first, last):
                        out[row, n] = one_widened_sum(t + (n - first) * row_bytes, u + row * row_bytes, n_in)
                continue
            for row in range(0, n_rows, 2):
                next_row = row + 1 if row + 1 < n_rows else row
                for n in range(first, last, 2):
                    next_n = n + 1 if n + 1 < last else n
                    a, b, c, d = four_sums(
                        t + (n - first) * row_bytes, t + (next_n - first) * row_bytes, u + row * row_bytes, u + next_row * row_bytes, n_in, spare
                    )
                    out[row, n], out[next_row, n], out[row, next_n], out[next_row, next_n] = a, b, c, d
        keep_alive(tile)
        keep_alive(buffer)

    @kernel
    def run(control, weights, x, out):
        tile_rows = 1 + TILE_VALUES // weights.shape[1]
        grain = 1 + GRAIN_PRODUCTS // x.size
        grain = grain if x.shape[0] == 1 or grain > tile_rows else tile_rows
        fork(control, body, weights.shape[0], grain, (weights, x, out, tile_rows))

    return run
