"""Dispatch: which place computes which of a window's experts, in one layer.  A pure function.

The entries (row, rank) are walked row by row; distinct experts come in first-appearance order.  Resident ones form the
cache's groups.  Of the n missed ones the last floor(n * share / 256) go over PCIe, those of them whose bytes a card may
fetch (`fetchable`) and for which the staging ring has room; the rest are jobs of the CPU pool, one per distinct expert with
all its rows.  The lists are laid out cache groups first, then PCIe groups, then jobs, each in first-appearance order; an
entry's result lands where `entry_of` says, so that ranks combine in rank order whoever computed them.

Every array is int32 and as long as the entries could need, so that a captured graph can hold the whole of it; `sizes` says
how much counts.  Does not know: bytes, executors, what is computed.
"""

from dataclasses import dataclass

import numpy as np

from strata.experts.residency import ABSENT
from strata.numerics.cpu import kernel

SHARE_UNIT = 256
RING_BLOBS = 64
"""Places of a device's staging ring."""
SPLIT_RING_BLOBS = 32
"""The same where several devices have one."""
MISSED, FETCHED = -2, -3


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """One layer's plan.

    experts int32 [n]: distinct ids, by place; places int32 [n]: their cache slot, ring place or id; starts int32 [n + 1], rows
    int32 [entries]: the rows of each; entry_of int32 [rows, K]; the first `n_cached` lie in the cache, `n_fetched` more go
    over PCIe, the rest to the pool.
    """

    experts: np.ndarray
    places: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    entry_of: np.ndarray
    n_cached: int
    n_fetched: int

    @property
    def n_jobs(self) -> int:
        return len(self.experts) - self.n_cached - self.n_fetched

    def entries_by_place(self) -> tuple[int, int, int]:
        """Return how many entries the cache, PCIe and the pool serve."""
        cached, fetched = int(self.starts[self.n_cached]), int(self.starts[self.n_cached + self.n_fetched])
        return cached, fetched - cached, int(self.starts[-1]) - fetched


def share_of(fraction: float) -> int:
    """Return a fraction in 256ths, as it is used."""
    return round(fraction * SHARE_UNIT)


def dispatch(ids: np.ndarray, slot_of: np.ndarray, fetchable: np.ndarray, share: int, ring_room: int = RING_BLOBS) -> Dispatch:
    """Plan one layer: ids int32 [rows, K]; slot_of int32, fetchable bool [experts]; share in 256ths of the missed ones."""
    n = ids.size
    experts, places, starts = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n + 1, np.int32)
    rows, entry_of, sizes = np.empty(n, np.int32), np.empty(ids.shape, np.int32), np.empty(3, np.int32)
    lay_out(ids, slot_of, fetchable, share, ring_room, np.empty((3, len(slot_of)), np.int32), experts, places, starts, rows, entry_of, sizes)
    total, n_cached, n_fetched = (int(size) for size in sizes)
    return Dispatch(experts[:total], places[:total], starts[: total + 1], rows, entry_of, n_cached, n_fetched)


@kernel
def lay_out(ids, slot_of, fetchable, share, ring_room, scratch, experts, places, starts, rows, entry_of, sizes):
    """Fill a plan's arrays; scratch int32 [3, experts]; sizes int32 [3]: distinct, cached, fetched experts."""
    order, count, at = scratch[0], scratch[1], scratch[2]
    count[:] = 0
    n, n_missed = 0, 0
    for row in range(ids.shape[0]):
        for rank in range(ids.shape[1]):
            e = ids[row, rank]
            if count[e] == 0:
                order[n] = e
                n += 1
                n_missed += slot_of[e] == ABSENT
            count[e] += 1
    first_fetched = n_missed - n_missed * share // SHARE_UNIT
    n_cached, n_fetched, seen = 0, 0, 0
    for i in range(n):
        e = order[i]
        if slot_of[e] != ABSENT:
            at[e] = slot_of[e]
            n_cached += 1
            continue
        is_fetched = seen >= first_fetched and fetchable[e] and n_fetched < ring_room
        at[e] = FETCHED if is_fetched else MISSED
        n_fetched += is_fetched
        seen += 1
    next_cached, next_fetched, next_job = 0, n_cached, n_cached + n_fetched
    for i in range(n):
        e = order[i]
        if at[e] >= 0:
            place, to = at[e], next_cached
            next_cached += 1
        elif at[e] == FETCHED:
            place, to = next_fetched - n_cached, next_fetched
            next_fetched += 1
        else:
            place, to = e, next_job
            next_job += 1
        experts[to], places[to] = e, place
    starts[0] = 0
    for i in range(n):
        starts[i + 1] = starts[i] + count[experts[i]]
        at[experts[i]] = starts[i]
    for row in range(ids.shape[0]):
        for rank in range(ids.shape[1]):
            e = ids[row, rank]
            rows[at[e]] = row
            entry_of[row, rank] = at[e]
            at[e] += 1
    sizes[0], sizes[1], sizes[2] = n, n_cached, n_fetched
