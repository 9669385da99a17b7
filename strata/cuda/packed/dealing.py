"""Which matrix of a launch a block belongs to: blocks are dealt out by ranges, float matrices first, then quantised ones.

Matrices that are not there have 0 outputs and no blocks.  Does not know: what a block computes.
"""

import numpy as np
from numba import cuda

from strata.cuda.machine.addresses import global_address
from strata.cuda.machine.seam import jit

MOST_MATRICES, MOST_FLOATS = 3, 2
"""Quantised and float matrices of a launch."""


@jit
def matrix_of_block(before, outputs, raw_0, raw_1, raw_2, n_out_0, n_out_1, n_out_2, out_0, out_1, out_2):
    """Return (number of this block in its matrix, the matrix, its outputs, where they go); `before` blocks are float, others of `outputs` outputs."""
    block = np.int32(np.int32(cuda.blockIdx.x) - before)
    first_1 = np.int32((n_out_0 + outputs - 1) // outputs)
    first_2 = np.int32(first_1 + (n_out_1 + outputs - 1) // outputs)
    raw, n_out, out = raw_0, n_out_0, out_0
    if block >= first_2:
        block, raw, n_out, out = np.int32(block - first_2), raw_2, n_out_2, out_2
    elif block >= first_1:
        block, raw, n_out, out = np.int32(block - first_1), raw_1, n_out_1, out_1
    return block, raw, n_out, out


def float_dealer(compute, outputs: int):
    """Build `blocks_of(n_0, n_1)`: blocks of the first and of both float matrices; `run(...)`: `compute` for the one that this block has.

    compute(block, weights, n_in, n_out, pitch, x, out) is given addresses; a block has `outputs` outputs.
    """

    @jit
    def blocks_of(n_0, n_1):
        n_first = np.int32((n_0 + outputs - 1) // outputs)
        return n_first, np.int32(n_first + (n_1 + outputs - 1) // outputs)

    @jit
    def run(n_first, weights_0, weights_1, n_in, n_0, n_1, pitch, x, out_0, out_1):
        block = np.int32(cuda.blockIdx.x)
        second = block >= n_first
        weights = global_address(weights_1) if second else global_address(weights_0)
        results = global_address(out_1) if second else global_address(out_0)
        own = n_1 if second else n_0
        compute(np.int32(block - n_first) if second else block, weights, n_in, own, pitch, x, results)

    return blocks_of, run
