"""Rows of a packed table, dequantised: token embeddings and n-gram rows, in any weight format.

A value is d * float32(s * q), rounded once, and the sum with the offset rounded once more: formats/unpack.py.  A thread makes four
neighbouring values (one word of codes); for embeddings it writes them to every residual stream.  Shapes: raw uint8 (the
table's rows one after the other), rows int32 or int64 [n], out float32 [n, copies, columns].  Does not know: tokens, hashes.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.seam import (
    ALIGNED_SEAM, SEAM, Target, add, brain, from_bits, half, jit, kernel, launch_dependents, load_u16, load_word, mul, wait_for_dependency,
)
from strata.cuda.machine.shapes import require
from strata.cuda.machine.stores import store_four_floats
from strata.formats.contract import GROUP
from strata.formats.floats import FloatFormat
from strata.formats.table import by_name

THREADS = 128
BYTE = 8


def _four_of_block_format(form):
    """Build `four(raw, base, i) -> four floats`: values i .. i + 3 of the row that starts at byte `base`."""
    # Blocks of 4 n bytes keep their 32-bit fields aligned; a table starts at a multiple of 16.
    reader = form.build(SEAM if form.block_bytes % 4 else ALIGNED_SEAM)
    word, scales = reader.word, reader.scales
    block_weights, block_bytes, has_offset = form.block_weights, form.block_bytes, form.has_offset

    @jit
    def value(d, s, offset, codes, i):
        product = mul(d, np.float32(s * np.int32(np.int8(codes >> (BYTE * i)))))
        return add(product, offset) if has_offset else product

    @jit
    def four(raw, base, i):
        at = base + np.int64(i // block_weights) * block_bytes
        group, j = np.int32(i % block_weights) // GROUP, np.int32(i % GROUP) // 4
        codes = word(raw, at, group, j)
        d, s0, s1, offset = scales(raw, at, group)
        s = s0 if j < 4 else s1
        return value(d, s, offset, codes, 0), value(d, s, offset, codes, 1), value(d, s, offset, codes, 2), value(d, s, offset, codes, 3)

    return four


def _four_of_floats(form):
    name, n_bytes = form.name, form.bytes

    @jit
    def one(raw, at):
        if name == "F32":
            return from_bits(np.int32(load_word(raw, at)))
        return half(load_u16(raw, at)) if name == "F16" else brain(load_u16(raw, at))

    @jit
    def four(raw, base, i):
        at = base + np.int64(i) * n_bytes
        return one(raw, at), one(raw, at + n_bytes), one(raw, at + 2 * n_bytes), one(raw, at + 3 * n_bytes)

    return four


@cache
def lookup_kernel(type_name: str, n_copies: int, target: Target):
    """Return kernel(raw, row_bytes, rows, columns, out); grid (columns / 4 THREADS, rows)."""
    form = by_name(type_name)
    four = _four_of_floats(form) if isinstance(form, FloatFormat) else _four_of_block_format(form)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(raw, row_bytes, rows, columns, out):
        go_on()
        wait_before()
        which = np.int64(cuda.blockIdx.y)
        i = 4 * np.int32(cuda.grid(1))
        if i < columns:
            a, b, c, d = four(raw, np.int64(rows[which]) * row_bytes, i)
            for copy in range(n_copies):
                store_four_floats(out, 4 * ((which * n_copies + copy) * columns + i), a, b, c, d)

    return run


def launch_lookup(
    device: CudaDevice, type_name: str, raw, row_bytes: int, rows, n_rows: int, columns: int, n_copies: int, out, programmatic: bool = False
) -> Launch:
    """out [n_rows, n_copies, columns] = rows `rows` of a table, each n_copies times."""
    require(columns % 4 == 0, f"{columns} columns", "values are made four at a time")
    require(n_rows <= 65535, f"{n_rows} rows", "a launch takes 65535", "look up fewer at a time")
    shape = Shape(((columns + 4 * THREADS - 1) // (4 * THREADS), n_rows), THREADS)
    run = lookup_kernel(type_name, n_copies, device.target)
    return Launch(device, run, shape, (raw, np.int64(row_bytes), rows, np.int32(columns), out), programmatic)
