"""Entries of many rows grouped by expert in first-appearance order: a thread block per expert reads all choices.

Two kernels: the first finds an expert's first entry and the number of its entries; the second places them.  An expert's place in the
list is the number of experts with an earlier first entry, its start the number of their entries.  Within an expert, entries stay in
ascending order: each warp has a stretch of them, counts its own, and starts where the stretches before it end.
Does not know: logits.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.experts.ranking import NOBODY
from strata.cuda.machine.seam import Target, jit, kernel, launch_dependents, load_four_words, wait_for_dependency
from strata.cuda.machine.warps import ballot, count_bits, lower_lanes, smallest_int, sum_int

THREADS = 256
WARPS = THREADS // 32
STRIDE = 128
"""Entries that a warp reads at once, four a thread."""
NO_EXPERT = np.int32(-1)


@jit
def four_ids(ids, entry, n_entries):
    """Choices of entries entry .. entry + 3, NO_EXPERT beyond the last."""
    if entry + 4 <= n_entries:
        return load_four_words(ids, 4 * np.int64(entry))
    a = ids[entry] if entry < n_entries else NO_EXPERT
    b = ids[entry + 1] if entry + 1 < n_entries else NO_EXPERT
    c = ids[entry + 2] if entry + 2 < n_entries else NO_EXPERT
    return a, b, c, NO_EXPERT


@jit
def one_if(condition):
    return np.int32(1 if condition else 0)


@cache
def first_kernel(target: Target):
    """Return kernel(ids, n_entries, n_experts, first, count); grid (experts)."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(ids, n_entries, n_experts, first, count):
        firsts = cuda.shared.array(WARPS, np.int32)
        counts = cuda.shared.array(WARPS, np.int32)
        go_on()
        wait_before()
        thread, expert = np.int32(cuda.threadIdx.x), np.int32(cuda.blockIdx.x)
        earliest, n = NOBODY, np.int32(0)
        for begin in range(4 * thread, n_entries, 4 * THREADS):
            entry = np.int32(begin)
            a, b, c, d = four_ids(ids, entry, n_entries)
            found = one_if(a == expert) + one_if(b == expert) + one_if(c == expert) + one_if(d == expert)
            if found > 0:
                own = 0 if a == expert else 1 if b == expert else 2 if c == expert else 3
                earliest, n = min(earliest, np.int32(entry + own)), np.int32(n + found)
        earliest, n = smallest_int(earliest), sum_int(n)
        if thread & 31 == 0:
            firsts[thread >> 5], counts[thread >> 5] = earliest, n
        cuda.syncthreads()
        if thread == 0:
            for w in range(1, WARPS):
                earliest, n = min(earliest, firsts[w]), np.int32(n + counts[w])
            first[expert], count[expert] = earliest, n

    return run


@jit
def _experts_before(first, count, n_experts, own_first, lane):
    """(entries of experts with an earlier first entry, their number, experts with entries), by one warp."""
    before, listed, n_all = np.int32(0), np.int32(0), np.int32(0)
    for other in range(lane, n_experts, 32):
        earlier = first[other] < own_first
        before += count[other] if earlier else 0
        listed += 1 if earlier else 0
        n_all += 1 if count[other] > 0 else 0
    return sum_int(before), sum_int(listed), sum_int(n_all)


@cache
def place_kernel(n_used: int, target: Target):
    """Return kernel(ids, n_entries, n_experts, first, count, experts, starts, entry_rows, entry_of, n_listed, n_starts); grid (experts)."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @jit
    def count_own(ids, begin, end, n_entries, expert, lane):
        n = np.int32(0)
        for at in range(begin, end, STRIDE):
            a, b, c, d = four_ids(ids, np.int32(at + 4 * lane), n_entries)
            n = np.int32(n + one_if(a == expert) + one_if(b == expert) + one_if(c == expert) + one_if(d == expert))
        return sum_int(n)

    @jit
    def put(is_own, place, entry, entry_rows, entry_of):
        if is_own:
            entry_rows[place], entry_of[entry] = entry // n_used, place
        return np.int32(place + one_if(is_own))

    @jit
    def place_own(ids, begin, end, n_entries, expert, lane, place, entry_rows, entry_of):
        for at in range(begin, end, STRIDE):
            entry = np.int32(at + 4 * lane)
            a, b, c, d = four_ids(ids, entry, n_entries)
            n = one_if(a == expert) + one_if(b == expert) + one_if(c == expert) + one_if(d == expert)
            if ballot(n > 0) != 0:
                # The number of each thread's entries, 0 .. 4, in three ballots: a number per bit.
                ones, twos, fours = ballot(n & 1 != 0), ballot(n & 2 != 0), ballot(n & 4 != 0)
                below = lower_lanes(lane)
                own = np.int32(place + count_bits(ones & below) + 2 * count_bits(twos & below) + 4 * count_bits(fours & below))
                own = put(a == expert, own, entry, entry_rows, entry_of)
                own = put(b == expert, own, np.int32(entry + 1), entry_rows, entry_of)
                own = put(c == expert, own, np.int32(entry + 2), entry_rows, entry_of)
                put(d == expert, own, np.int32(entry + 3), entry_rows, entry_of)
                place = np.int32(place + count_bits(ones) + 2 * count_bits(twos) + 4 * count_bits(fours))

    @kernel(THREADS)
    def run(ids, n_entries, n_experts, first, count, experts, starts, entry_rows, entry_of, n_listed, n_starts):
        counts = cuda.shared.array(WARPS, np.int32)
        go_on()
        wait_before()
        thread, expert = np.int32(cuda.threadIdx.x), np.int32(cuda.blockIdx.x)
        lane, warp, n_own = thread & 31, thread >> 5, count[expert]
        before, listed, n_all = _experts_before(first, count, n_experts, first[expert], lane)
        if expert == 0:
            if thread == 0:
                n_listed[0] = n_all
            for place in range(n_all + thread, n_starts, THREADS):
                starts[place] = n_entries
        if n_own == 0:
            return
        if thread == 0:
            experts[listed], starts[listed] = expert, before
        share = np.int32((n_entries + WARPS * STRIDE - 1) // (WARPS * STRIDE) * STRIDE)
        begin = np.int32(warp * share)
        end = min(np.int32(begin + share), np.int32(n_entries))
        n = count_own(ids, begin, end, n_entries, expert, lane)
        if lane == 0:
            counts[warp] = n
        cuda.syncthreads()
        place = before
        for w in range(WARPS):
            place = np.int32(place + (counts[w] if w < warp else np.int32(0)))
        place_own(ids, begin, end, n_entries, expert, lane, place, entry_rows, entry_of)

    return run
