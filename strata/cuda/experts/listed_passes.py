"""Which entries a block of `expert_products.py` has: one pass of one listed expert.

Block `number` has the first pass of listed expert `number`; blocks behind the listed experts have the second passes of those that
have one, in their order; the rest have nothing, nor has a block of a one-row window whose expert is negative (dispatching.py).
The lists are read past the first-level cache, since they may be read while the kernel ahead still runs.

Shapes: experts, starts, n_listed as `products.Lists` says.  Does not know: weights, activations.
"""

import numpy as np
from numba import cuda

from strata.cuda.machine.posting import read_posted
from strata.cuda.machine.seam import jit
from strata.cuda.machine.warps import ballot, count_bits, lower_lanes, lowest_lane

MOST_PASSES = 2
"""Passes of an expert: a row chooses an expert once, and there are at most MOST_PASSES times as many rows as a pass has."""


def listed_pass(n_pass: int):
    """Build `listed_entries(number, experts, starts, n_listed)`: first entry, end and expert; no entries where first >= end."""

    @jit
    def with_second(which, starts, n):
        """The number of the listed expert whose second pass is the `which`-th, or -1; whole warps."""
        lane, found = np.int32(cuda.threadIdx.x) & 31, np.int32(-1)
        for base in range(0, n, 32):
            i = min(np.int32(base + lane), np.int32(n - 1))
            has = (base + lane < n) & (read_posted(starts, np.int64(i + 1)) - read_posted(starts, np.int64(i)) > n_pass)
            bits = ballot(has)
            mine = ballot(has & (count_bits(bits & lower_lanes(lane)) == which))
            if mine != 0:
                found = np.int32(base + lowest_lane(mine))
            which = np.int32(which - count_bits(bits))
        return found

    @jit
    def listed_entries(number, experts, starts, n_listed):
        if n_pass == 1:
            expert = read_posted(experts, np.int64(number))
            return number, np.int32(number + 1 if expert >= 0 else number), expert
        n, place = read_posted(n_listed, np.int64(0)), np.int64(min(number, np.int32(experts.size - 1)))
        first, end, expert = read_posted(starts, place), read_posted(starts, place + 1), read_posted(experts, place)
        if number >= n:
            second = with_second(np.int32(number - n), starts, n)
            place = np.int64(max(second, np.int32(0)))
            first, end, expert = np.int32(read_posted(starts, place) + n_pass), read_posted(starts, place + 1), read_posted(experts, place)
            end = end if second >= 0 else first
        return first, min(end, np.int32(first + n_pass)), expert

    return listed_entries


