"""A warp picks the best K experts of a row and weighs them: the order of host/experts.py.

Expert 32 i + t is thread t's i-th.  The K-th largest of the threads' own best keys bounds the choice from below, so few experts
can be among the best K: mostly about K.  Up to 32 of these *candidates* are ranked by counting, each by its own thread; where
ties leave more, K rounds take the largest key and, among equals, the lowest expert.  Either way gives the same ids.
w_j = exp(l_j - l_0) / sum, the sum a chain in rank order.

Shapes: logits [rows, E]; ids int32, weights [rows, K].  Does not know: entries, lists.
"""

import numpy as np

from strata.cuda.on_cuda import exp, key
from strata.cuda.seam import Target, add, div, jit, shuffle_float, shuffle_int, sub, sync_warp
from strata.cuda.warps import ballot, count_bits, integers, lower_lanes, lowest_lane, smallest_int

ZERO = np.float32(0.0)
LOWEST = np.int32(-0x80000000)
NOBODY = np.int32(0x7FFFFFFF)
SCRATCH, CHOICE = 96, 64
"""int32 of shared memory per warp: the candidates' keys and experts, and from CHOICE on what was chosen."""


def ranking(n_experts: int, n_used: int, target: Target):
    """Build `rank_row(logits, ids, weights, row, thread, keys, scratch, at)`, and how many int32 its local array `keys` has.

    scratch[at : at + SCRATCH] is the warp's own shared memory; the choice stays there.
    """
    per_thread, largest = (n_experts + 31) // 32, integers(target).largest

    @jit
    def load_keys(logits, base, thread, keys):
        """Read this thread's keys and return the largest; missing experts have the lowest key."""
        best = LOWEST
        for i in range(per_thread):
            e = 32 * i + thread
            keys[i] = key(logits[base + e]) if e < n_experts else LOWEST
            best = np.int32(max(best, keys[i]))
        return best

    @jit
    def bound_of(best, thread):
        """The n_used-th largest of 32 threads' keys, of equal ones the lower thread first."""
        above = np.int32(0)
        for other in range(32):
            theirs = shuffle_int(best, np.int32(other))
            above += 1 if theirs > best or theirs == best and other < thread else 0
        return shuffle_int(best, lowest_lane(ballot(above == n_used - 1)))

    @jit
    def collect(keys, bound, thread, scratch, at):
        """List the experts whose keys reach the bound, in ascending order, as far as there is room; return their number."""
        n = np.int32(0)
        for i in range(per_thread):
            is_in = 32 * i + thread < n_experts and keys[i] >= bound
            bits = ballot(is_in)
            place = np.int32(n + count_bits(bits & lower_lanes(thread)))
            if is_in and place < 32:
                scratch[at + place], scratch[at + 32 + place] = keys[i], 32 * i + thread
            n = np.int32(n + count_bits(bits))
        return n

    @jit
    def choose_by_count(n, thread, scratch, at):
        """The thread's expert, where n <= 32 candidates are listed."""
        sync_warp()
        mine, above = scratch[at + thread] if thread < n else LOWEST, np.int32(0)
        for other in range(n):
            theirs = scratch[at + other]
            above += 1 if theirs > mine or theirs == mine and other < thread else 0
        if thread < n and above < n_used:
            scratch[at + CHOICE + above] = scratch[at + 32 + thread]
        sync_warp()
        return scratch[at + CHOICE + thread] if thread < n_used else np.int32(0)

    @jit
    def choose_by_rounds(keys, thread, scratch, at):
        """The thread's expert, by n_used rounds over all keys."""
        chosen, taken = np.int32(0), np.int32(0)
        for rank in range(n_used):
            best, expert = LOWEST, NOBODY
            for i in range(per_thread):
                is_free = 32 * i + thread < n_experts and (taken >> i) & 1 == 0
                if is_free and (expert == NOBODY or keys[i] > best):
                    best, expert = keys[i], np.int32(32 * i + thread)
            mine = expert if best == largest(best) else NOBODY
            winner = smallest_int(mine)
            if mine == winner:
                taken = np.int32(taken | (1 << (winner >> 5)))
            if thread == rank:
                chosen = winner
        if thread < n_used:
            scratch[at + CHOICE + thread] = chosen
        return chosen

    @jit
    def rank_row(logits, ids, weights, row, thread, keys, scratch, at):
        base = np.int64(row) * n_experts
        bound = bound_of(load_keys(logits, base, thread, keys), thread)
        n = collect(keys, bound, thread, scratch, at)
        if n <= 32:
            chosen = choose_by_count(n, thread, scratch, at)
        else:
            chosen = choose_by_rounds(keys, thread, scratch, at)
        logit = logits[base + chosen]
        mine = exp(sub(logit, shuffle_float(logit, np.int32(0))))
        total = ZERO
        for rank in range(n_used):
            total = add(total, shuffle_float(mine, np.int32(rank)))
        if thread < n_used:
            ids[row * n_used + thread] = chosen
            weights[row * n_used + thread] = div(mine, total)

    return rank_row, per_thread
