"""The last block of the router's launch: it waits for the logits of a few rows, chooses experts and groups the entries.

A warp has a row: it reads the posted logits (posting.py) until all are there, empties their words and ranks (ranking.py); then the
block groups (grouping.py).  The entries of one row are its ranks, so that everything but the choice is known ahead and is
written by the warps that have no row.

Shapes: posted int32 [rows, E], all EMPTY between launches; the rest as in routing.py.  Does not know: products.
"""

import numpy as np
from numba import cuda

from strata.cuda.experts.grouping import grouping
from strata.cuda.experts.ranking import LOWEST, SCRATCH, existing, ranking
from strata.cuda.machine.on_cuda import key
from strata.cuda.machine.posting import EMPTY, give_up, read_posted, take_back
from strata.cuda.machine.seam import Target, from_bits, jit, sync_warp


def _awaiting(n_experts: int):
    """Build `await_keys(posted, base, thread, keys)`: the keys of a row once it is there; its words are empty again."""
    per_thread, exists = (n_experts + 31) // 32, existing(n_experts)

    @jit
    def await_keys(posted, base, thread, keys):
        is_missing, n_reads = True, np.int32(0)
        while is_missing:
            is_missing = False
            for i in range(per_thread):
                keys[i] = read_posted(posted, base + (32 * i + thread if exists(i, thread) else 0))
            for i in range(per_thread):
                is_missing |= keys[i] == EMPTY
            n_reads = np.int32(n_reads + 1)
            give_up(n_reads)
        sync_warp()
        for i in range(per_thread):
            if exists(i, thread):
                take_back(posted, base + 32 * i + thread)
            keys[i] = key(from_bits(keys[i])) if exists(i, thread) else LOWEST

    return await_keys


def _one_row(n_experts: int, n_used: int, n_threads: int, target: Target):
    rank, await_keys = ranking(n_experts, n_used, target), _awaiting(n_experts)
    choose, weigh, per_thread = rank.choose, rank.weigh, rank.per_thread

    @jit
    def finish(posted, ids, weights, experts, starts, entry_rows, entry_of, n_listed, n_starts, thread):
        scratch, keys = cuda.shared.array(SCRATCH, np.int32), cuda.local.array(per_thread, np.int32)
        if thread >= 32:
            for place in range(thread - 32, n_starts, n_threads - 32):
                starts[place] = min(place, n_used)
            for rank in range(thread - 32, n_used, n_threads - 32):
                entry_rows[rank], entry_of[rank] = 0, rank
            if thread == 32:
                n_listed[0] = n_used
            return
        await_keys(posted, np.int64(0), thread, keys)
        expert, rank_key = choose(keys, thread, scratch, np.int32(0))
        if thread < n_used:
            ids[thread], experts[thread] = expert, expert
        weight = weigh(rank_key)
        if thread < n_used:
            weights[thread] = weight

    return finish


def _several_rows(n_experts: int, n_used: int, n_rows: int, n_threads: int, target: Target):
    rank, await_keys = ranking(n_experts, n_used, target), _awaiting(n_experts)
    rank_row, per_thread = rank.rank_row, rank.per_thread
    clear, group = grouping(n_experts, n_used, n_rows, n_threads)
    n_scratch, n_warps = SCRATCH * n_rows, n_threads // 32

    @jit
    def finish(posted, ids, weights, experts, starts, entry_rows, entry_of, n_listed, n_starts, thread):
        # One to a line: the simulator tells shared arrays apart by their lines.
        first = cuda.shared.array(n_experts, np.int32)
        rows_of = cuda.shared.array(n_experts, np.int32)
        scratch = cuda.shared.array(n_scratch, np.int32)
        sums = cuda.shared.array(n_warps, np.int32)
        keys = cuda.local.array(per_thread, np.int32)
        clear(first, rows_of, thread)
        row = thread >> 5
        if row < n_rows:
            await_keys(posted, np.int64(row) * n_experts, thread & 31, keys)
            rank_row(keys, ids, weights, row, thread & 31, scratch, SCRATCH * row)
        cuda.syncthreads()
        group(scratch, experts, starts, entry_rows, entry_of, n_listed, n_starts, thread, first, rows_of, sums)

    return finish


def last_block(n_experts: int, n_used: int, n_rows: int, n_threads: int, target: Target):
    """Build `finish(posted, ids, weights, experts, starts, entry_rows, entry_of, n_listed, n_starts, thread)` for n_threads >= 32 n_rows."""
    if n_rows == 1:
        return _one_row(n_experts, n_used, n_threads, target)
    return _several_rows(n_experts, n_used, n_rows, n_threads, target)
