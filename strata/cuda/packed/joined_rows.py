"""All products that a layer makes of one input in one launch: quantised matrices of one format, and float matrices beside them.

A launch costs as much time as a few megabytes of weights, and a small matrix alone cannot fill a card.  Blocks are dealt out by
ranges (dealing.py): first those of the float matrices (two outputs a block, as in float_rows.py), then those of up to three quantised
matrices (as in rows.py).  Every block computes what it would have computed in a launch of its own matrix.

Shapes as in rows.py and float_rows.py: codes, scales, sums are the coded rows, x the float rows; the products of matrix i go to
an array of its own.  Does not know: layers.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.floats.float_rows import MEETING, WIDEN_FOUR, output_products
from strata.cuda.machine.addresses import global_address, shared_address
from strata.cuda.machine.seam import Target, jit, kernel, launch_dependents, wait_for_dependency
from strata.cuda.packed.dealing import float_dealer, matrix_of_block
from strata.cuda.packed.rows import MIN_BLOCKS, ROWS_PER_TURN, THREADS, dense_block, shared_bytes
from strata.formats.table import FORMATS

OUTPUTS = 2
"""Float outputs of a block."""
FLOAT_BYTES = {1: 28000, 2: 36000, 3: 45000, 4: 57000, 5: 57000, 6: 57000, 7: 57000, 8: 57000}
"""Shared memory that a block may use for its float outputs, by rows; activation rows that do not fit are read from outside."""


def float_pitch(type_name: str, n_in: int) -> int:
    """Return the bytes of shared memory for one float weight row."""
    return (n_in * WIDEN_FOUR[type_name][1] + 31) // 16 * 16


def float_cut(type_name: str, n_in: int, n_rows: int, outputs: int = OUTPUTS) -> tuple[bool, int]:
    """Return whether float activations are staged, and the shared memory in bytes of a block with so many float outputs."""
    n_bytes = outputs * (float_pitch(type_name, n_in) + 4 * MEETING * n_rows)
    with_rows = n_bytes + 4 * n_rows * n_in
    staged = with_rows <= FLOAT_BYTES[n_rows]
    return staged, with_rows if staged else n_bytes


def block_bytes(type_id: int, n_rows: int, n_groups: int, float_type: str, n_in: int) -> int:
    """Return the dynamic shared memory of a launch; float_type is empty where there are no float matrices."""
    quantised = shared_bytes(type_id, n_rows, n_groups)
    return max(quantised, float_cut(float_type, n_in, n_rows)[1]) if float_type else quantised


def float_blocks(n_out: int) -> int:
    """Return the blocks of a float matrix."""
    return -(-n_out // OUTPUTS)


def float_block(float_type: str, n_rows: int, staged: bool, target: Target, outputs: int = OUTPUTS):
    """Build `compute(block, weights, n_in, n_out, pitch, x, out)`: one block of one float matrix, 64 threads an output, by addresses."""
    begin, finish = output_products(float_type, n_rows, outputs, staged, target)
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)

    @jit
    def compute(block, weights, n_in, n_out, pitch, x, out):
        shared, floats = shared_address(cuda.shared.array(0, types.uint8)), cuda.shared.array(0, types.float32)
        thread, which = np.int32(cuda.threadIdx.x) & 63, np.int32(cuda.threadIdx.x) >> 6
        n = np.int32(block * outputs + which)
        slot, before, middle = begin(shared, weights, min(n, np.int32(n_out - 1)), n_in, pitch, thread, which)
        go_on()
        wait_before()
        finish(shared, floats, slot, before, middle, x, n, n_in, n_out, pitch, thread, which, out)

    return compute


@cache
def joined_rows(type_id: int, n_rows: int, float_type: str, staged: bool, known_groups: int, target: Target):
    """Return the kernel for exactly n_rows (1 .. rows.MOST_ROWS) rows; matrices that are not there have 0 outputs.

    `known_groups`: as `rows.known_of` gives them.

    kernel(raw_0, raw_1, raw_2, row_bytes, n_groups, n_out_0, n_out_1, n_out_2, n_turns, codes, scales, sums, out_0, out_1, out_2,
    weights_0, weights_1, n_in, n_float_0, n_float_1, pitch, x, float_out_0, float_out_1).
    """
    quantised = dense_block(FORMATS[type_id], n_rows, target, known_groups=known_groups)
    has_floats = bool(float_type)
    float_blocks_of, floats = float_dealer(float_block(float_type, n_rows, staged, target), OUTPUTS) if has_floats else (None, None)

    @kernel(THREADS, MIN_BLOCKS[n_rows])
    def run(
        raw_0, raw_1, raw_2, row_bytes, n_groups, n_out_0, n_out_1, n_out_2, n_turns, codes, scales, sums, out_0, out_1, out_2,
        weights_0, weights_1, n_in, n_float_0, n_float_1, pitch, x, float_out_0, float_out_1,
    ):
        before = np.int32(0)
        if has_floats:
            n_first, before = float_blocks_of(n_float_0, n_float_1)
            if np.int32(cuda.blockIdx.x) < before:
                floats(n_first, weights_0, weights_1, n_in, n_float_0, n_float_1, pitch, x, float_out_0, float_out_1)
                return
        outputs = np.int32(n_turns * ROWS_PER_TURN)
        block, raw, n_out, out = matrix_of_block(before, outputs, raw_0, raw_1, raw_2, n_out_0, n_out_1, n_out_2, out_0, out_1, out_2)
        quantised(block, global_address(raw), row_bytes, n_groups, n_out, n_turns, codes, scales, sums, out)

    return run
