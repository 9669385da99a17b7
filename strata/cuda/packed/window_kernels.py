"""The kernel of a window's products on tensor cores: up to three quantised matrices of one format, and float matrices beside them.

Blocks are dealt out by ranges (dealing.py): first those of the float matrices (four outputs a block), then those of
the quantised ones (window_tiles.py).  Every block computes what it would have computed in a launch of its own matrix.
Shapes as in joined_rows.py.  Does not know: layers.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.floats import float_wide_rows
from strata.cuda.floats.float_rows import MEETING, THREADS_PER_OUTPUT
from strata.cuda.machine.addresses import global_address
from strata.cuda.machine.seam import Target, jit, kernel
from strata.cuda.machine.shapes import shared_room
from strata.cuda.packed.dealing import MOST_FLOATS, MOST_MATRICES, float_dealer, matrix_of_block
from strata.cuda.packed.joined_rows import float_block, float_pitch
from strata.cuda.packed.window_cuts import BYTES, LEAST_ROWS, MOST_ROWS, OUTPUTS, THREADS, Cut, blocks_of, cut_of
from strata.cuda.packed.window_tiles import window_block
from strata.formats.table import FORMATS

FLOAT_OUTPUTS = THREADS // THREADS_PER_OUTPUT
"""Float outputs of a block: as many as one of float_wide_rows.py has."""
MOST_SPLIT_OUTPUTS = 65536
"""Outputs up to which these kernels take formats with two sub-scales a group, a product each: of more dp4a (rows.py) is quicker."""
WIDE_FLOATS, WIDE_STEPS = True, 2
"""Whether the threads of a float block share activation rows where they can, and elements of a lane that are fetched together."""


def _float_block(float_type: str, n_rows: int, wide: bool, target: Target):
    """Build `compute(block, weights, n_in, n_out, pitch, x, out)`: a block of FLOAT_OUTPUTS outputs of a float matrix.

    `wide`: a block's threads share every activation row (float_wide_rows.py); else each output has threads of its own.
    """
    if not wide:
        return float_block(float_type, n_rows, False, target, FLOAT_OUTPUTS)
    compute = float_wide_rows.wide_block(float_type, n_rows, WIDE_STEPS, 1, target)

    @jit
    def compute_wide(block, weights, n_in, n_out, pitch, x, out):
        compute(block, weights, n_in, n_out, x, out)

    return compute_wide


@cache
def window_products(type_id: int, units: int, stages: int, held: int, float_type: str, n_float_rows: int, wide: bool, target: Target):
    """Return the kernel for up to window_cuts.MOST_ROWS rows, exactly n_float_rows where there are float matrices (else 0).

    kernel(raw_0, raw_1, raw_2, row_bytes, n_groups, n_out_0, n_out_1, n_out_2, n_rows, n_turns, codes, scales, sums, out_0,
    out_1, out_2, weights_0, weights_1, n_in, n_float_0, n_float_1, pitch, x, float_out_0, float_out_1); matrices that are not
    there have 0 outputs.
    """
    quantised = window_block(FORMATS[type_id], units, stages, target)
    has_floats = bool(float_type)
    float_blocks_of, floats = float_dealer(_float_block(float_type, n_float_rows, wide, target), FLOAT_OUTPUTS) if has_floats else (None, None)

    @kernel(THREADS, held)
    def run(
        raw_0, raw_1, raw_2, row_bytes, n_groups, n_out_0, n_out_1, n_out_2, n_rows, n_turns, codes, scales, sums, out_0, out_1, out_2,
        weights_0, weights_1, n_in, n_float_0, n_float_1, pitch, x, float_out_0, float_out_1,
    ):
        before = np.int32(0)
        if has_floats:
            n_first, before = float_blocks_of(n_float_0, n_float_1)
            if np.int32(cuda.blockIdx.x) < before:
                floats(n_first, weights_0, weights_1, n_in, n_float_0, n_float_1, pitch, x, float_out_0, float_out_1)
                return
        outputs = np.int32(n_turns * OUTPUTS)
        block, raw, n_out, out = matrix_of_block(before, outputs, raw_0, raw_1, raw_2, n_out_0, n_out_1, n_out_2, out_0, out_1, out_2)
        quantised(block, global_address(raw), row_bytes, n_groups, n_out, n_rows, n_turns, codes, scales, sums, out)

    return run


def cut_for(device: CudaDevice, matrices, n_rows: int) -> Cut | None:
    """Return how a launch for these matrices of one format is cut, None where these kernels do not take it."""
    if not LEAST_ROWS <= n_rows <= MOST_ROWS:
        return None
    m = matrices[0]
    if FORMATS[m.type_id].split_scales and sum(one.n_out for one in matrices) > MOST_SPLIT_OUTPUTS:
        return None
    return cut_of(m.type_id, m.n_groups, tuple(one.n_out for one in matrices), shared_room(device.card.capability))


def _float_cut(float_type: str, n_in: int, n_rows: int, room: int) -> tuple[bool, int]:
    """Return whether float blocks are wide, and the shared memory of one in bytes."""
    if WIDE_FLOATS and float_wide_rows.takes(float_type, n_in, n_rows, min(room, BYTES)):
        return True, float_wide_rows.shared_bytes(float_type, n_in, n_rows, 1)
    return False, FLOAT_OUTPUTS * (float_pitch(float_type, n_in) + 4 * MEETING * n_rows)


def window_launch(
    device: CudaDevice, cut: Cut, matrices, outs, coded: tuple, n_rows: int, programmatic: bool = False, floats=(), float_outs=(), values=None
) -> Launch:
    """One launch for up to three matrices of one format, coded activations (codes, scales, sums), and up to two float matrices of `values`."""
    m = matrices[0]
    float_type, n_in = (floats[0].type_name if floats else ""), 32 * m.n_groups
    wide, float_bytes = _float_cut(float_type, n_in, n_rows, shared_room(device.card.capability)) if floats else (False, 0)
    n_blocks = sum(blocks_of(one.n_out, cut.turns) for one in matrices) + sum(-(-one.n_out // FLOAT_OUTPUTS) for one in floats)
    arguments = (
        *_filled([one.raw for one in matrices], MOST_MATRICES, m.raw), np.int32(m.row_bytes), np.int32(m.n_groups),
        *_filled([np.int32(one.n_out) for one in matrices], MOST_MATRICES, np.int32(0)), np.int32(n_rows), np.int32(cut.turns),
        *coded, *_filled(list(outs), MOST_MATRICES, outs[0]), *_filled([one.raw for one in floats], MOST_FLOATS, m.raw), np.int32(n_in),
        *_filled([np.int32(one.n_out) for one in floats], MOST_FLOATS, np.int32(0)), np.int32(float_pitch(float_type, n_in) if floats else 0),
        values if floats else outs[0], *_filled(list(float_outs), MOST_FLOATS, outs[0]),
    )
    kernel = window_products(m.type_id, cut.units, cut.stages, cut.held, float_type, n_rows if floats else 0, wide, device.target)
    return Launch(device, kernel, Shape((n_blocks, 1), THREADS, max(cut.shared_bytes, float_bytes)), arguments, programmatic)


def _filled(values: list, n: int, nothing) -> list:
    """Return n values, `nothing` in the place of those that are not there."""
    return values + [nothing] * (n - len(values))
