"""Float weight rows on their way to shared memory; their width is a constant of the code.

*By pieces*: a row by a team of threads.  It begins anywhere; what is copied are the aligned pieces that it touches.  *In bulk*: rows of whole pieces,
one instruction each, by the first warp of a block, behind a barrier that counts their bytes.

    row_copier(n_bytes, n_threads, target) -> send(place, slot, n, thread)      returns where row n's first byte will lie
    bulk_rows(n_bytes) -> send(place, slot, n, n_rows, barrier, thread)         rows n .. n + n_rows - 1, one behind the other
    landed(barrier)                                                             behind it, once the block has met, they can be read

Does not know: what the rows are for.
"""

import numpy as np

from strata.cuda.machine.addresses import copy_series
from strata.cuda.machine.bulk import arrive, bulk_copy, set_up, wait_for_bytes
from strata.cuda.machine.seam import Target, jit, sync_warp

PIECE, WARP = 16, 32
"""Bytes of a copy, and threads of a warp."""


def row_pitch(n_bytes: int) -> int:
    """Return the bytes of shared memory for a row of n_bytes: the aligned pieces that it touches, wherever such rows begin."""
    return n_bytes if n_bytes % PIECE == 0 else (n_bytes + 2 * PIECE - 1) // PIECE * PIECE


def in_bulk(n_bytes: int, target: Target) -> bool:
    """Whether rows of n_bytes can be copied in bulk."""
    return target.bulk_copies and n_bytes % PIECE == 0


def row_copier(n_bytes: int, n_threads: int, target: Target):
    """Build `send(place, slot, n, thread)`: row n of the matrix at `place` to `slot`; returns where the row's first byte will lie."""
    step = PIECE * n_threads
    copy = copy_series(PIECE, -(-row_pitch(n_bytes) // step), step, step, step, target, once=True)

    @jit
    def send(place, slot, n, thread):
        start = place + np.int64(n) * n_bytes
        before = np.int32(start & (PIECE - 1))
        copy(slot + PIECE * thread, start - before + PIECE * thread, np.int32(before + n_bytes - PIECE * thread))
        return slot + before

    return send


def bulk_rows(n_bytes: int):
    """Build `send(place, slot, n, n_rows, barrier, thread)`, which sets the barrier up for these rows alone: its turn 0 is all that it has."""

    @jit
    def send(place, slot, n, n_rows, barrier, thread):
        if thread < WARP:
            if thread == 0:
                set_up(barrier, np.int32(1))
            sync_warp()
            source = place + np.int64(n) * n_bytes
            for row in range(n_rows):
                bulk_copy(slot + row * n_bytes, source + row * n_bytes, np.int32(n_bytes), barrier, np.int32(1))
            arrive(barrier, np.int32(n_rows * n_bytes))

    return send


@jit
def landed(barrier):
    wait_for_bytes(barrier, np.int32(0))
