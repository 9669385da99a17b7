"""How packed weight rows and coded activation rows reach shared memory.

A *unit* is 256 weights of a row (8 groups, one per lane), `unit_bytes` long in the packed file layout.  A *stage* holds
`units` consecutive units of each of a tile's rows.  Rows start anywhere, so a stage's slot holds the aligned 16-byte pieces
that cover it, and some bytes of its first piece come before the first one wanted.  Reads stay inside the aligned pieces
that a row touches: an allocation of weights ends at a multiple of 16 bytes.

Activation rows lie whole in shared memory: per unit 256 bytes of codes, first halves of the 8 groups, then second halves
(so that eight lanes read 128 neighbouring bytes), and per group a pair (scale float32, sum of codes int32).
Does not know: what is computed.
"""

from dataclasses import dataclass

import numpy as np

from strata.cuda.machine.addresses import copier, copy_series
from strata.cuda.machine.seam import Target, jit
from strata.errors import DeviceError
from strata.formats.contract import GROUP, WeightFormat

UNIT = 256
LARGEST_STAGE = 424
"""Bytes of a row per stage, at most, where one unit is not longer."""
MOST_COPIES = 9
"""Pieces of a stage that one thread copies."""
UNIT_BYTES = UNIT + 64
"""Shared memory of one unit of an activation row."""


@dataclass(frozen=True, slots=True)
class Staging:
    """Constants of a format's stages: bytes per unit, units per stage, bytes between rows in a slot, pieces per row."""

    unit_bytes: int
    units: int
    pitch: int
    pieces: int
    groups_per_block: int

    @property
    def stage_bytes(self) -> int:
        """Bytes of a row per stage."""
        return self.unit_bytes * self.units


def rows_are_aligned(form: WeightFormat) -> bool:
    """Whether rows of a format begin at multiples of 16 bytes, as its blocks do."""
    return form.block_bytes % 16 == 0


def staging_of(form: WeightFormat, units: int = 0) -> Staging:
    """Return the constants for a format; `units` = 0 picks the largest power of two within LARGEST_STAGE.

    The pitch is an odd number of pieces: eight rows' words then lie in different banks.
    """
    unit_bytes = form.block_bytes * UNIT // form.block_weights
    if not units:
        units = 1
        while 2 * units * unit_bytes <= LARGEST_STAGE:
            units *= 2
    slack = 0 if rows_are_aligned(form) else 15
    pieces = (slack + unit_bytes * units + 15) // 16
    return Staging(unit_bytes, units, 16 * (pieces | 1), pieces, form.block_weights // GROUP)


def activation_bytes(n_rows: int, n_groups: int) -> int:
    """Return the shared memory of whole activation rows."""
    return n_rows * ((n_groups + 7) // 8) * UNIT_BYTES


def weight_fetcher(staging: Staging, threads_per_row: int, target: Target):
    """Build `fetch(slot, source, left)`: one row's part of a stage by threads_per_row (4, 8 or 16) threads.

    Addresses are this thread's: `slot` the row's place plus 16 * part, `source` the stage's first aligned piece plus
    16 * part; left = bytes of the row from there on.
    """
    step = 16 * threads_per_row
    c0, c1, c2, c3, c4, c5, c6, c7, c8 = (copier(16, k * step, k * step, target, once=True) for k in range(MOST_COPIES))
    n_copies = -(-staging.pieces // threads_per_row)
    spare = n_copies * threads_per_row - staging.pieces
    last_bytes = 16 * (threads_per_row - spare)
    if n_copies > MOST_COPIES:
        raise DeviceError(f"stages of {staging.pieces} pieces", f"a thread copies {MOST_COPIES} at most", "use fewer units a stage")

    @jit
    def fetch(slot, source, left, part):
        if left > 0 and (n_copies > 1 or 16 * part < last_bytes):
            c0(slot, source)
        if n_copies > 1 and left > step and (n_copies > 2 or 16 * part < last_bytes):
            c1(slot, source)
        if n_copies > 2 and left > 2 * step and (n_copies > 3 or 16 * part < last_bytes):
            c2(slot, source)
        if n_copies > 3 and left > 3 * step and (n_copies > 4 or 16 * part < last_bytes):
            c3(slot, source)
        if n_copies > 4 and left > 4 * step and (n_copies > 5 or 16 * part < last_bytes):
            c4(slot, source)
        if n_copies > 5 and left > 5 * step and (n_copies > 6 or 16 * part < last_bytes):
            c5(slot, source)
        if n_copies > 6 and left > 6 * step and (n_copies > 7 or 16 * part < last_bytes):
            c6(slot, source)
        if n_copies > 7 and left > 7 * step and (n_copies > 8 or 16 * part < last_bytes):
            c7(slot, source)
        if n_copies > 8 and left > 8 * step and 16 * part < last_bytes:
            c8(slot, source)

    return fetch


def row_stager(n_threads: int, target: Target, known_groups: int = 0):
    """Build `stage(codes_to, marks_to, codes, scales, sums, row, n_groups, thread)`: one activation row, whole; addresses.

    `known_groups` (0: any number) of a row that all launches have: their copies are written out.
    """
    if known_groups:
        return _known_row_stager(n_threads, target, known_groups)
    copy16, copy4, copy4_behind = copier(16, 0, 0, target), copier(4, 0, 0, target), copier(4, 4, 0, target)

    @jit
    def stage(codes_to, marks_to, codes, scales, sums, row, n_groups, thread):
        first = np.int64(row) * n_groups
        for piece in range(thread, 2 * n_groups, n_threads):
            group = piece >> 1
            copy16(codes_to + (256 * (group >> 3) + 128 * (piece & 1) + 16 * (group & 7)), codes + (32 * first + 16 * piece))
        for group in range(thread, n_groups, n_threads):
            copy4(marks_to + 8 * group, scales + 4 * (first + group))
            copy4_behind(marks_to + 8 * group, sums + 4 * (first + group))

    return stage


def _known_row_stager(n_threads: int, target: Target, n: int):
    """The same for rows of n groups; n_threads is a multiple of 16."""
    copy_codes = copy_series(16, -(-2 * n // n_threads), 16 * n_threads, 16 * n_threads, n_threads, target)
    copy_marks = copy_series(4, -(-n // n_threads), 8 * n_threads, 4 * n_threads, n_threads, target)

    @jit
    def stage(codes_to, marks_to, codes, scales, sums, row, n_groups, thread):
        first, group = np.int64(row) * n, thread >> 1
        codes_place = codes_to + (256 * (group >> 3) + 128 * (thread & 1) + 16 * (group & 7))
        copy_codes(codes_place, codes + (32 * first + 16 * thread), np.int32(2 * n - thread))
        copy_marks(marks_to + 8 * thread, scales + 4 * (first + thread), np.int32(n - thread))
        copy_marks(marks_to + (8 * thread + 4), sums + 4 * (first + thread), np.int32(n - thread))

    return stage
