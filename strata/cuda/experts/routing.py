"""Routing on a card: the best K experts of each row, their weights, and the entries grouped by expert.

Orders of host/experts.py.  A warp ranks a row (ranking.py).

Entries (row, rank) are grouped by expert in first-appearance order, from counts alone, so that no timing enters: an entry's
place is the number of entries whose expert appeared earlier, plus the earlier entries of its own expert.  Up to MOST_ROWS_TOGETHER rows
do all of it in one block (grouping.py; router.py has the router's product in the same launch); prompt chunks take a kernel that
ranks and the two of chunk_grouping.py.

Shapes: logits [rows, E]; ids int32, weights [rows, K]; experts, starts, entry_rows, n_listed as `products.Lists` (starts beyond the
listed experts hold the number of entries); entry_of int32 [rows, K].  Does not know: formats, tiers, spans.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.experts import chunk_grouping
from strata.cuda.experts.grouping import grouping
from strata.cuda.experts.ranking import SCRATCH, ranking
from strata.cuda.machine.seam import Target, kernel, launch_dependents, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.packed.products import Lists
from strata.model.config import ModelConfig

MOST_TOGETHER = 1024
"""Entries that one block routes and groups."""
MOST_ROWS_TOGETHER = 8
"""Rows that are routed so at most: such a kernel is made for one number of rows, and prompts have many lengths."""
WARPS = 8
THREADS = 32 * WARPS
LARGEST_LIST = 1024
"""Experts that the kernels take."""


@cache
def route_kernel(n_experts: int, n_used: int, target: Target):
    """Return kernel(logits, n_rows, ids, weights): a warp per row, WARPS rows a block."""
    rank = ranking(n_experts, n_used, target)
    load_keys, rank_row, per_thread = rank.load_keys, rank.rank_row, rank.per_thread
    n_scratch = SCRATCH * WARPS
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(logits, n_rows, ids, weights):
        keys, scratch = cuda.local.array(per_thread, np.int32), cuda.shared.array(n_scratch, np.int32)
        go_on()
        wait_before()
        warp = np.int32(cuda.threadIdx.x) >> 5
        row, thread = np.int32(cuda.blockIdx.x) * WARPS + warp, np.int32(cuda.threadIdx.x) & 31
        if row < n_rows:
            load_keys(logits, np.int64(row) * n_experts, thread, keys)
            rank_row(keys, ids, weights, row, thread, scratch, SCRATCH * warp)

    return run


@cache
def together_kernel(n_experts: int, n_used: int, n_rows: int, target: Target):
    """Return kernel(logits, ids, weights, experts, starts, entry_rows, entry_of, n_listed, n_starts): one block does it all."""
    n_threads = threads_together(n_rows, n_used)
    rank = ranking(n_experts, n_used, target)
    load_keys, rank_row, per_thread = rank.load_keys, rank.rank_row, rank.per_thread
    clear, group = grouping(n_experts, n_used, n_rows, n_threads)
    n_warps = n_threads // 32
    n_scratch = SCRATCH * n_warps
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads)
    def run(logits, ids, weights, experts, starts, entry_rows, entry_of, n_listed, n_starts):
        # One to a line: the simulator tells shared arrays apart by their lines.
        first = cuda.shared.array(n_experts, np.int32)
        rows_of = cuda.shared.array(n_experts, np.int32)
        scratch = cuda.shared.array(n_scratch, np.int32)
        sums = cuda.shared.array(n_warps, np.int32)
        keys = cuda.local.array(per_thread, np.int32)
        thread = np.int32(cuda.threadIdx.x)
        go_on()
        clear(first, rows_of, thread)
        wait_before()
        row = thread >> 5
        if row < n_rows:
            load_keys(logits, np.int64(row) * n_experts, thread & 31, keys)
            rank_row(keys, ids, weights, row, thread & 31, scratch, SCRATCH * row)
        cuda.syncthreads()
        group(scratch, experts, starts, entry_rows, entry_of, n_listed, n_starts, thread, first, rows_of, sums)

    return run


def threads_together(n_rows: int, n_used: int) -> int:
    """Return the threads of the one-block kernel: a warp per row, and a thread per entry."""
    return min(MOST_TOGETHER, max(32 * n_rows, (n_rows * n_used + 31) // 32 * 32))


def launch_route_and_group(
    device: CudaDevice, config: ModelConfig, logits, n_rows: int, ids, weights, lists: Lists, entry_of, first, count,
    programmatic: bool = False,
) -> tuple[Launch, ...]:
    """Fill ids and weights [rows, K], `lists` and entry_of [rows, K]; first, count int32 [E] are scratch."""
    n_experts, n_used, target = config.n_experts, config.n_used, device.target
    n_entries = n_rows * n_used
    require(n_used <= 32 and n_used <= n_experts <= LARGEST_LIST, f"{n_used} of {n_experts} experts", f"32 of {LARGEST_LIST} fit")
    require(n_entries <= lists.most_entries, f"{n_entries} entries", f"the lists were made for {lists.most_entries}", "make longer lists")
    listed = (lists.experts, lists.starts, lists.entry_rows, entry_of, lists.n_listed, np.int32(lists.most_experts + 1))
    if n_rows <= MOST_ROWS_TOGETHER and n_entries <= MOST_TOGETHER:
        run = together_kernel(n_experts, n_used, n_rows, target)
        shape = Shape((1, 1), threads_together(n_rows, n_used))
        return (Launch(device, run, shape, (logits, ids, weights, *listed), programmatic),)
    by_row = Shape(((n_rows + WARPS - 1) // WARPS, 1), THREADS)
    route = Launch(device, route_kernel(n_experts, n_used, target), by_row, (logits, np.int32(n_rows), ids, weights), programmatic)
    return route, *launch_group(device, config, ids, n_rows, lists, entry_of, first, count, programmatic)


def launch_group(
    device: CudaDevice, config: ModelConfig, ids, n_rows: int, lists: Lists, entry_of, first, count, programmatic: bool = False
) -> tuple[Launch, ...]:
    """Fill `lists` and entry_of [rows, K] from chosen ids [rows, K]; first, count int32 [E] are scratch."""
    n_experts, n_used, target = config.n_experts, config.n_used, device.target
    by_expert = Shape((n_experts, 1), chunk_grouping.THREADS)
    listed = (lists.experts, lists.starts, lists.entry_rows, entry_of, lists.n_listed, np.int32(lists.most_experts + 1))
    grouped = (ids, np.int32(n_rows * n_used), np.int32(n_experts), first, count)
    return (
        Launch(device, chunk_grouping.first_kernel(target), by_expert, grouped, programmatic),
        Launch(device, chunk_grouping.place_kernel(n_used, target), by_expert, (*grouped, *listed), programmatic),
    )
