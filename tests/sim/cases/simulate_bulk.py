"""Bulk copies in the simulator: bytes behind their barrier, turns of it, and an end to waiting for bytes that do not come."""

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types

from strata.cuda.machine import bulk
from strata.cuda.machine.addresses import global_address, shared_address, shared_word
from strata.cuda.machine.seam import kernel

N_TURNS, ROW = 3, 64


def rows_kernel(announced: int):
    """Two warps copy a row of bytes each, turn after turn; all threads read a word."""

    @kernel(64)
    def run(source, out):
        shared, thread = shared_address(cuda.shared.array(0, types.uint8)), np.int32(cuda.threadIdx.x)
        barrier, warp = shared + 2 * ROW, np.int32(thread // 32)
        if thread == 0:
            bulk.set_up(barrier, np.int32(2))
        cuda.syncthreads()
        for turn in range(N_TURNS):
            at = global_address(source) + (2 * turn + warp) * ROW
            bulk.bulk_copy(shared + warp * ROW, at, np.int32(ROW), barrier, np.int32(1))
            bulk.bulk_copy(shared + warp * ROW, at, np.int32(ROW), barrier, np.int32(0))
            bulk.arrive(barrier, np.int32(announced))
            bulk.wait_for_bytes(barrier, np.int32(turn & 1))
            if thread < 32:
                out[32 * turn + thread] = np.int32(shared_word(shared + 4 * thread))
            cuda.syncthreads()

    return run


def test_rows_land_turn_by_turn():
    source = np.arange(N_TURNS * 2 * ROW // 4, dtype=np.int32)
    out = np.zeros(N_TURNS * 32, np.int32)
    rows_kernel(ROW)[1, 64, 0, 2 * ROW + 16](source, out)
    assert np.array_equal(out, source)


def test_waiting_for_bytes_ends(monkeypatch):
    monkeypatch.setattr(bulk, "PATIENCE_S", 0.1)
    monkeypatch.setattr(bulk, "PATIENCE_NS", np.int64(1000))
    with pytest.raises(Exception, match="did not come"):
        rows_kernel(ROW + 16)[1, 64, 0, 2 * ROW + 16](np.zeros(N_TURNS * 2 * ROW // 4, np.int32), np.zeros(N_TURNS * 32, np.int32))
