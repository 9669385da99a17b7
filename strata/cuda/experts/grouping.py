"""One block groups the entries of a few rows by expert in first-appearance order, from counts alone.

Two tables in shared memory, by expert: its first entry, and a bit for every row that chose it (a row chooses an expert once).  An
expert's place in the list is the number of experts with an earlier first entry, its start the number of their entries: one
running sum over entries.  Integer atomics have no order that shows.  Does not know: logits.
"""

import numpy as np
from numba import cuda

from strata.cuda.experts.ranking import CHOICE, NOBODY, SCRATCH
from strata.cuda.machine.seam import jit, shuffle_int
from strata.cuda.machine.shapes import require
from strata.cuda.machine.warps import count_bits, lower_lanes

LOW_HALF = np.int32(0xFFFF)
MOST_ROWS = 32
"""A row is a bit of an int32."""


def grouping(n_experts: int, n_used: int, n_rows: int, n_threads: int):
    """Build `clear(first, rows_of, thread)` and `group(...)` for n_rows * n_used <= n_threads entries.

    first, rows_of int32 [n_experts] and totals int32 [n_threads / 32] are shared memory, as is scratch, where ranking.py left each row's
    choice; the block meets after `clear`.
    """
    n_entries, n_warps = n_rows * n_used, n_threads // 32
    require(n_rows <= MOST_ROWS and n_entries <= n_threads, f"{n_rows} rows of {n_used} experts", "one block cannot group them", "use routing")

    @jit
    def clear(first, rows_of, thread):
        for e in range(thread, n_experts, n_threads):
            first[e], rows_of[e] = NOBODY, np.int32(0)

    @jit
    def sum_before(own, thread, totals):
        """Return (sum of `own` over lower threads, over all threads)."""
        lane, warp = thread & 31, thread >> 5
        before, step = own, np.int32(1)
        while step < 32:
            theirs = shuffle_int(before, max(np.int32(lane - step), np.int32(0)))
            before = np.int32(before + (theirs if lane >= step else np.int32(0)))
            step = np.int32(2 * step)
        if lane == 31:
            totals[warp] = before
        cuda.syncthreads()
        before, whole = np.int32(before - own), np.int32(0)
        for w in range(n_warps):
            before = np.int32(before + (totals[w] if w < warp else np.int32(0)))
            whole = np.int32(whole + totals[w])
        return before, whole

    @jit
    def group(scratch, experts, starts, entry_rows, entry_of, n_listed, n_starts, thread, first, rows_of, totals):
        is_entry = thread < n_entries
        entry = min(thread, np.int32(n_entries - 1))
        row = np.int32(entry // n_used)
        expert = scratch[SCRATCH * row + CHOICE + (entry - row * n_used)]
        if is_entry:
            cuda.atomic.min(first, expert, entry)
            cuda.atomic.or_(rows_of, expert, np.int32(1 << row))
        cuda.syncthreads()
        rows = rows_of[expert]
        is_first = is_entry and first[expert] == entry
        # Entries in the lower half, experts in the upper.
        before, whole = sum_before(np.int32(count_bits(rows) + 65536) if is_first else np.int32(0), thread, totals)
        if is_first:
            experts[before >> 16], starts[before >> 16], first[expert] = expert, before & LOW_HALF, before & LOW_HALF
        cuda.syncthreads()
        if is_entry:
            place = first[expert] + count_bits(rows & lower_lanes(row))
            entry_rows[place], entry_of[entry] = row, place
        if thread == 0:
            n_listed[0] = whole >> 16
        for place in range((whole >> 16) + thread, n_starts, n_threads):
            starts[place] = n_entries

    return clear, group
