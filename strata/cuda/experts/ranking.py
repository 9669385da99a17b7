"""A warp picks the best K experts of a row and weighs them: the order of host/experts.py.

Expert 32 i + t is thread t's i-th.  The K-th largest of the threads' own best keys bounds the choice from below, so few experts
can be among the best K: mostly about K.  Up to 32 of these *candidates* are ranked by counting, each by its own thread; where
ties leave more, K rounds take the largest key and, among equals, the lowest expert.  Either way gives the same ids.
w_j = exp(l_j - l_0) / sum, the sum a chain in rank order.  A logit is had back from its key: only a zero loses its sign, which
its weight does not show.

Shapes: logits [rows, E]; ids int32, weights [rows, K].  Does not know: entries, lists, where logits come from.
"""

from types import SimpleNamespace

import numpy as np

from strata.cuda.machine.on_cuda import exp, key
from strata.cuda.machine.seam import Target, add, div, from_bits, jit, shuffle_float, sub, sync_warp
from strata.cuda.machine.warps import ballot, count_bits, integers, lower_lanes

ZERO = np.float32(0.0)
LOWEST = np.int32(-0x80000000)
NOBODY = np.int32(0x7FFFFFFF)
MAGNITUDE = np.int32(0x7FFFFFFF)
SCRATCH, EXPERTS, CHOICE, CHOSEN_KEYS = 128, 32, 64, 96
"""int32 of shared memory per warp: the candidates' keys, from EXPERTS on their experts, from CHOICE on what was chosen, and its keys."""
HALF_LIST = 16
"""Candidates that are compared without asking whether there are more."""


@jit
def logit_of(rank_key):
    """The logit of a key, without the sign of a zero."""
    return from_bits(rank_key if rank_key >= 0 else np.int32(rank_key ^ MAGNITUDE))


def existing(n_experts: int):
    """Build `exists(i, thread)`: whether thread's i-th expert is one; nothing is asked where all are."""
    are_all = n_experts % 32 == 0

    @jit
    def exists(i, thread):
        return True if are_all else 32 * i + thread < n_experts

    return exists


def _choosing(n_experts: int, n_used: int, target: Target) -> SimpleNamespace:
    """Build `bound_of`, `collect`, `by_count` and `by_rounds`; the last two return the thread's expert and its key."""
    per_thread, largest = (n_experts + 31) // 32, integers(target).largest
    n_bits = per_thread.bit_length()

    exists = existing(n_experts)

    @jit
    def smallest(x):
        return np.int32(~largest(np.int32(~x)))

    @jit
    def bound_of(keys, thread, scratch, at):
        """The n_used-th largest of the 32 threads' best keys: the smallest of those that fewer than n_used exceed."""
        best, above = LOWEST, np.int32(0)
        for i in range(per_thread):
            best = keys[i] if keys[i] > best else best
        scratch[at + thread] = best
        sync_warp()
        for other in range(32):
            above = np.int32(above + np.int32(scratch[at + other] > best))
        return smallest(best if above < n_used else NOBODY)

    @jit
    def collect(keys, bound, thread, scratch, at):
        """List the experts whose keys reach the bound, thread by thread, as far as there is room; return their number."""
        own, place, n = np.int32(0), np.int32(0), np.int32(0)
        for i in range(per_thread):
            own = np.int32(own + np.int32(exists(i, thread) & (keys[i] >= bound)))
        for bit in range(n_bits):
            bits = ballot((own >> bit) & 1 != 0)
            place = np.int32(place + (count_bits(bits & lower_lanes(thread)) << bit))
            n = np.int32(n + (count_bits(bits) << bit))
        for i in range(per_thread):
            is_in = exists(i, thread) & (keys[i] >= bound)
            if is_in & (place < 32):
                scratch[at + place], scratch[at + EXPERTS + place] = keys[i], 32 * i + thread
            place = np.int32(place + np.int32(is_in))
        return n

    @jit
    def before(other, n, mine, expert, scratch, at):
        """1 where listed candidate `other` ranks before the thread's, else 0; without branches, so that reads do not wait for each other."""
        theirs, their_expert = scratch[at + other], scratch[at + EXPERTS + other]
        return np.int32((other < n) & ((theirs > mine) | ((theirs == mine) & (their_expert < expert))))

    @jit
    def by_count(n, thread, scratch, at):
        """Where n <= 32 candidates are listed."""
        sync_warp()
        mine, expert, rank = scratch[at + thread], scratch[at + EXPERTS + thread], np.int32(0)
        for other in range(HALF_LIST):
            rank = np.int32(rank + before(other, n, mine, expert, scratch, at))
        if n > HALF_LIST:
            for other in range(HALF_LIST, 32):
                rank = np.int32(rank + before(other, n, mine, expert, scratch, at))
        if thread < n and rank < n_used:
            scratch[at + CHOICE + rank], scratch[at + CHOSEN_KEYS + rank] = expert, mine
        sync_warp()
        place = at + (thread if thread < n_used else np.int32(0))
        return scratch[place + CHOICE], scratch[place + CHOSEN_KEYS]

    @jit
    def by_rounds(keys, thread, scratch, at):
        """By n_used rounds over all keys."""
        chosen, chosen_key, taken = np.int32(0), LOWEST, np.int32(0)
        for rank in range(n_used):
            best, expert = LOWEST, NOBODY
            for i in range(per_thread):
                is_free = exists(i, thread) and (taken >> i) & 1 == 0
                if is_free and (expert == NOBODY or keys[i] > best):
                    best, expert = keys[i], np.int32(32 * i + thread)
            highest = largest(best)
            winner = smallest(expert if best == highest else NOBODY)
            if (winner & 31) == thread:
                taken = np.int32(taken | (1 << (winner >> 5)))
            if thread == rank:
                chosen, chosen_key = winner, highest
        if thread < n_used:
            scratch[at + CHOICE + thread] = chosen
        return chosen, chosen_key

    return SimpleNamespace(bound_of=bound_of, collect=collect, by_count=by_count, by_rounds=by_rounds)


def ranking(n_experts: int, n_used: int, target: Target) -> SimpleNamespace:
    """Build `load_keys(logits, base, thread, keys)` and what chooses from keys.

    `choose(keys, thread, scratch, at) -> (expert, key)` of rank `thread`, `weigh(key) -> weight`, and both with their stores:
    `rank_row(keys, ids, weights, row, thread, scratch, at)`.  `keys` is a thread's local array of `per_thread` int32, missing experts of
    the lowest key; scratch[at : at + SCRATCH] is the warp's own shared memory, where the experts chosen stay, from CHOICE on.
    """
    per_thread, exists, parts = (n_experts + 31) // 32, existing(n_experts), _choosing(n_experts, n_used, target)
    bound_of, collect, by_count, by_rounds = parts.bound_of, parts.collect, parts.by_count, parts.by_rounds

    @jit
    def load_keys(logits, base, thread, keys):
        for i in range(per_thread):
            keys[i] = key(logits[base + 32 * i + thread]) if exists(i, thread) else LOWEST

    @jit
    def choose(keys, thread, scratch, at):
        n = collect(keys, bound_of(keys, thread, scratch, at), thread, scratch, at)
        if n <= 32:
            expert, rank_key = by_count(n, thread, scratch, at)
        else:
            expert, rank_key = by_rounds(keys, thread, scratch, at)
        return expert, rank_key

    @jit
    def weigh(rank_key):
        logit, total = logit_of(rank_key), ZERO
        mine = exp(sub(logit, shuffle_float(logit, np.int32(0))))
        for rank in range(n_used):
            total = add(total, shuffle_float(mine, np.int32(rank)))
        return div(mine, total)

    @jit
    def rank_row(keys, ids, weights, row, thread, scratch, at):
        expert, rank_key = choose(keys, thread, scratch, at)
        weight = weigh(rank_key)
        if thread < n_used:
            ids[row * n_used + thread] = expert
            weights[row * n_used + thread] = weight

    return SimpleNamespace(per_thread=per_thread, load_keys=load_keys, choose=choose, weigh=weigh, rank_row=rank_row)
