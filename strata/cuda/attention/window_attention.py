"""Attention over one split of cells for windows of few rows: everything on its way before anything is computed.

The orders of host/attention.py, with the triples of split_attention.py, which merging.py merges.  A thread block has one row, one split
and a part of a K/V head's query heads, so that one row's splits fill a card.  Keys and values of the split come by asynchronous
copies into shared memory, the values while scores are made.  Teams of threads have a few heads each; one warp more sums the weights,
a head a thread, while they make value sums.  Does not know: which cells, the merge.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.attention.attention_parts import SPLIT
from strata.cuda.attention.staged_reads import FORMATS, StagedLayout, staged_reader
from strata.cuda.attention.window_attention_parts import TEAM, WARP, arrival, split_scores, split_softmax, split_values
from strata.cuda.machine.addresses import shared_address
from strata.cuda.machine.seam import Target, copies, kernel, launch_dependents, wait_for_dependency

FEW_HEADS, MANY_HEADS = 6, 12
"""Query heads of a thread block, at most: fewer make more blocks, more share a split's keys and values."""
MANY_ROWS = 4
"""Windows of this many rows have blocks enough for MANY_HEADS."""
MOST_TEAMS = 7
MOST_THREADS = 1100
"""Threads of a multiprocessor that registers are left for: three blocks of FEW_HEADS or two of MANY_HEADS at the real geometry."""


def per_thread(group: int) -> int:
    """Return the heads of a team, of which a thread makes the scores of one cell."""
    return next(n for n in (3, 2, 1) if group % n == 0)


def heads_of(n_rows: int) -> int:
    """Return the most heads of a block for a number of rows."""
    return FEW_HEADS if n_rows < MANY_ROWS else MANY_HEADS


@dataclass(frozen=True, slots=True)
class StagedShape(StagedLayout):
    """Geometry and variant of a split's kernel; `dense` attends to cells 0 .. position.  Shared memory in floats."""

    n_q: int
    n_kv: int
    size: int
    kv: str
    dense: bool
    most_heads: int = FEW_HEADS

    @property
    def group(self) -> int:
        """Query heads of a thread block."""
        of_key = self.n_q // self.n_kv
        return next(n for n in range(min(self.most_heads, of_key), 0, -1) if of_key % n == 0 and n // per_thread(n) <= MOST_TEAMS)

    @property
    def heads_per_thread(self) -> int:
        return per_thread(self.group)

    @property
    def n_teams(self) -> int:
        return self.group // self.heads_per_thread

    @property
    def n_threads(self) -> int:
        """The teams, and the warp that sums weights."""
        return TEAM * self.n_teams + WARP

    @property
    def team_pitch(self) -> int:
        """Floats per cell and team of the softmax weights: one load."""
        return 4 if self.heads_per_thread == 3 else self.heads_per_thread

    @property
    def pitch(self) -> int:
        """Floats per cell of the softmax weights."""
        return self.n_teams * self.team_pitch

    @property
    def weights_at(self) -> int:
        return self.queries_at + self.group * self.size

    @property
    def tops_at(self) -> int:
        return self.weights_at + SPLIT * self.pitch

    @property
    def ids_at(self) -> int:
        return self.tops_at + self.group

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.ids_at + SPLIT)


def takes(kv: str, target: Target) -> bool:
    """Whether the kernel is made for a format and a card: shared memory beyond 64 KB came with asynchronous copies."""
    return kv in FORMATS and target.async_copies


@cache
def staged_kernel(shape: StagedShape, target: Target):
    """Return the kernel; grid (heads / group * splits, rows), shape.n_threads threads.

    kernel(queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_splits, tops,
    totals, triples): shapes as in split_attention.py.
    """
    n_q, n_kv, size, group, dense, n_threads = shape.n_q, shape.n_kv, shape.size, shape.group, shape.dense, shape.n_threads
    n_groups, per_key = n_q // group, n_q // group // n_kv
    read, n_teams, heads = staged_reader(shape), shape.n_teams, shape.heads_per_thread
    ask, fetch = arrival(shape, target)
    scores, (weigh, total_of), accumulate = split_scores(shape, read), split_softmax(shape), split_values(shape, read.pair)
    keys_here, all_here = copies(target, 1).wait, copies(target, 0).wait
    n_dots, n_sums, tops_at, ids_at = 4 * heads, 2 * heads, shape.tops_at, shape.ids_at
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads, MOST_THREADS // n_threads)
    def run(
        queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_splits, tops,
        totals, triples,
    ):
        shared = cuda.shared.array(0, types.float32)
        ids, start = cuda.shared.array(0, types.int32), shared_address(shared)
        values, dots = cuda.local.array(4, np.float32), cuda.local.array(n_dots, np.float32)
        sums = cuda.local.array(n_sums, np.float32)
        go_on()
        wait_before()
        row, thread = np.int32(cuda.blockIdx.y), np.int32(cuda.threadIdx.x)
        which, split = np.int32(cuda.blockIdx.x) % n_groups, np.int32(cuda.blockIdx.x) // n_groups
        first_head = np.int64(row) * n_q + which * group
        # A place of the list that the row does not fill is read, and its cell is not: nothing waits for the count.
        place = split * SPLIT + (thread & (SPLIT - 1))
        own = place if dense else cells[np.int64(row) * width + min(place, np.int32(width - 1))]
        first_vector = np.int64(slots[row]) * n_cells * n_kv + which // per_key
        count = positions[row] + 1 if dense else counts[row]
        if split * SPLIT >= count:
            return
        ask(start, queries, first_head, thread)
        n = min(np.int32(count - split * SPLIT), np.int32(SPLIT))
        if thread < n:
            ids[ids_at + thread] = own
        cuda.syncthreads()
        fetch(start, shared, ids, k_codes, k_scales, v_codes, v_scales, first_vector, n, thread)
        keys_here()
        cuda.syncthreads()
        team = np.int32(thread // TEAM)
        if team < n_teams:
            scores(shared, n, scale, thread, values, dots)
        cuda.syncthreads()
        weigh(shared, n, thread)
        all_here()
        cuda.syncthreads()
        if team == n_teams:
            if thread & 31 < group:
                head = np.int32(thread & 31)
                at = (first_head + head) * n_splits + split
                tops[at], totals[at] = shared[tops_at + head], total_of(shared, n, head)
            return
        first_head += team * heads
        for dim in range(2 * (thread & (TEAM - 1)), size, 2 * TEAM):
            accumulate(shared, n, dim, team, sums)
            for h in range(heads):
                at = ((first_head + h) * n_splits + split) * size + dim
                triples[at], triples[at + 1] = sums[2 * h], sums[2 * h + 1]

    return run
