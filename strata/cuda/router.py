"""Router and shared gate of a few rows, the choice of experts and the grouped entries, in one launch.

Four outputs a block, 64 threads each, in the order of float_rows.py (256 lanes, the halving tree); output E is the shared
expert's gate.  Weight rows are fetched before the previous kernel has ended.  The block that ends last (a counter in device
memory tells, and is set back) reads all logits, ranks a row a warp (ranking.py) and groups the entries (grouping.py): which
block that is changes nothing.

Shapes, flat: router raw bytes of [E, n_in], shared_router of [1, n_in], of one float type; x, rows of n_in float32; logits [rows,
E]; shared_gate [rows]; counter int32 [1], zero between launches.  Does not know: experts' matrices.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.addresses import copier, global_address, shared_address
from strata.cuda.device import CudaDevice
from strata.cuda.expert_products import most_shared_bytes
from strata.cuda.float_rows import THREADS_PER_OUTPUT, WIDEN_FOUR, _advance, sum_in_warp
from strata.cuda.grouping import grouping
from strata.cuda.launch import Launch, Shape
from strata.cuda.products import Lists
from strata.cuda.ranking import SCRATCH, ranking
from strata.cuda.routing import LARGEST_LIST
from strata.cuda.seam import Target, add, copies, jit, kernel, launch_dependents, wait_for_dependency
from strata.cuda.shapes import require
from strata.model.config import ModelConfig

ZERO = np.float32(0.0)
TEAMS = 4
"""Outputs of a block."""
THREADS = THREADS_PER_OUTPUT * TEAMS
WARPS = THREADS // 32
MOST_ROWS = 8
STATIC_BYTES = 4 * (2 * LARGEST_LIST + WARPS * SCRATCH + WARPS + 1)
"""Shared memory of the choice and the grouping, at most."""
MEETING = 128
"""Floats per row and output in which the two warps of an output meet."""


def _row_pitch(type_name: str, n_in: int) -> int:
    return (n_in * WIDEN_FOUR[type_name][1] + 31) // 16 * 16


def shared_bytes(type_name: str, n_in: int, n_rows: int, staged: bool) -> int:
    """Return the dynamic shared memory of a block, with or without its activation rows."""
    return (4 * n_rows * n_in if staged else 0) + TEAMS * (_row_pitch(type_name, n_in) + 4 * MEETING * n_rows)


def _totals(n_rows: int, n_experts: int):
    """Build `store_totals(lanes, floats, meeting, thread, n, logits, shared_gate)`: the sums over 64 threads' lanes, as in float_rows.py."""

    @jit
    def store_totals(lanes, floats, meeting, thread, n, logits, shared_gate):
        warp, in_warp = thread >> 5, thread & 31
        for r in range(n_rows):
            if (r & 1) != warp:
                for j in range(4):
                    floats[meeting + MEETING * r + 32 * j + in_warp] = lanes[4 * r + j]
        cuda.syncthreads()
        for r in range(n_rows):
            if (r & 1) == warp:
                at = meeting + MEETING * r + in_warp
                v0, v1 = add(lanes[4 * r], floats[at]), add(lanes[4 * r + 1], floats[at + 32])
                v2, v3 = add(lanes[4 * r + 2], floats[at + 64]), add(lanes[4 * r + 3], floats[at + 96])
                total = sum_in_warp(v0, v1, v2, v3, in_warp)
                if in_warp == 0 and n < n_experts:
                    logits[np.int64(r) * n_experts + n] = total
                if in_warp == 0 and n == n_experts:
                    shared_gate[r] = total

    return store_totals


@cache
def router_kernel(type_name: str, n_experts: int, n_used: int, n_rows: int, staged: bool, target: Target):
    """Return the kernel for exactly n_rows rows; grid ((E + 1) / TEAMS, rounded up), THREADS threads.

    kernel(router, shared_router, n_in, pitch, x, logits, shared_gate, counter, ids, weights, experts, starts, entry_rows, entry_of,
    n_listed, n_starts).
    """
    value_bytes, advance, store_totals = WIDEN_FOUR[type_name][1], _advance(type_name, n_rows, staged), _totals(n_rows, n_experts)
    copy_weights, copy_row = copier(16, 0, 0, target, once=True), copier(16, 0, 0, target)
    commit, wait_all = copies(target, 0).commit, copies(target, 0).wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    rank_row, per_thread = ranking(n_experts, n_used, target)
    clear, group = grouping(n_experts, n_used, n_rows, THREADS)
    n_lanes, n_scratch = 4 * n_rows, WARPS * SCRATCH

    @kernel(THREADS)
    def run(
        router, shared_router, n_in, pitch, x, logits, shared_gate, counter, ids, weights, experts, starts, entry_rows, entry_of, n_listed,
        n_starts,
    ):
        shared, floats = shared_address(cuda.shared.array(0, types.uint8)), cuda.shared.array(0, types.float32)
        # One to a line: the simulator tells shared arrays apart by their lines.
        first = cuda.shared.array(n_experts, np.int32)
        rows_of = cuda.shared.array(n_experts, np.int32)
        scratch = cuda.shared.array(n_scratch, np.int32)
        sums = cuda.shared.array(WARPS, np.int32)
        ticket = cuda.shared.array(1, np.int32)
        lanes, keys = cuda.local.array(n_lanes, np.float32), cuda.local.array(per_thread, np.int32)
        whole = np.int32(cuda.threadIdx.x)
        thread, team = whole & 63, whole >> 6
        n = np.int32(np.int32(cuda.blockIdx.x) * TEAMS + team)
        place = global_address(shared_router) if n == n_experts else global_address(router)
        start = np.int64(n if n < n_experts else 0) * n_in * value_bytes
        before = start & 15
        x_bytes = 4 * n_rows * np.int64(n_in) if staged else np.int64(0)
        slot = shared + (x_bytes + team * pitch)
        for piece in range(thread, (before + n_in * value_bytes + 15) >> 4, THREADS_PER_OUTPUT):
            copy_weights(slot + 16 * piece, place + (start - before + 16 * piece))
        commit()
        clear(first, rows_of, whole)
        go_on()
        wait_before()
        if staged:
            for piece in range(whole, x_bytes >> 4, THREADS):
                copy_row(shared + 16 * piece, global_address(x) + 16 * piece)
            commit()
        for v in range(n_lanes):
            lanes[v] = ZERO
        wait_all()
        cuda.syncthreads()
        advance(slot + before, shared + 0, x, 0, n_in, thread, n_in, lanes)
        meeting = ((x_bytes + TEAMS * pitch) >> 2) + team * (n_rows * MEETING)
        store_totals(lanes, floats, meeting, thread, n, logits, shared_gate)
        cuda.threadfence()
        cuda.syncthreads()
        if whole == 0:
            ticket[0] = cuda.atomic.add(counter, 0, 1)
        cuda.syncthreads()
        if ticket[0] != np.int32(cuda.gridDim.x) - 1:
            return
        cuda.threadfence()
        if whole == 0:
            counter[0] = 0
        row = whole >> 5
        if row < n_rows:
            rank_row(logits, ids, weights, row, whole & 31, keys, scratch, SCRATCH * row)
        cuda.syncthreads()
        group(scratch, experts, starts, entry_rows, entry_of, n_listed, n_starts, whole, first, rows_of, sums)

    return run


def _is_staged(device: CudaDevice, type_name: str, n_in: int, n_rows: int) -> bool:
    return shared_bytes(type_name, n_in, n_rows, True) + STATIC_BYTES <= most_shared_bytes(device)


def fits(device: CudaDevice, config: ModelConfig, type_names: tuple[str, str], n_in: int, n_rows: int) -> bool:
    """Whether the launch takes this window; `products.floats` and `routing` take any."""
    router, shared = type_names
    return (
        router == shared and n_in % 4 == 0 and n_rows <= MOST_ROWS and n_rows * config.n_used <= THREADS
        and config.n_used <= 32 and config.n_used <= config.n_experts <= LARGEST_LIST
        and shared_bytes(router, n_in, n_rows, False) + STATIC_BYTES <= most_shared_bytes(device)
    )


def launch_router(
    device: CudaDevice, config: ModelConfig, type_name: str, router, shared_router, n_in: int, x, n_rows: int, logits, shared_gate, counter,
    ids, weights, lists: Lists, entry_of, programmatic: bool = False,
) -> Launch:
    """Fill logits [rows, E], shared_gate [rows], ids and weights [rows, K], `lists` and entry_of [rows, K]."""
    c = config
    require(fits(device, c, (type_name, type_name), n_in, n_rows), f"{n_rows} rows of {n_in}", "the fused router does not take them", "use routing")
    require(n_rows * c.n_used <= lists.most_entries, f"{n_rows * c.n_used} entries", f"the lists were made for {lists.most_entries}", "make longer lists")
    staged = _is_staged(device, type_name, n_in, n_rows)
    shape = Shape((c.n_experts // TEAMS + 1, 1), THREADS, shared_bytes(type_name, n_in, n_rows, staged))
    sizes = np.int32(n_in), np.int32(_row_pitch(type_name, n_in))
    listed = (lists.experts, lists.starts, lists.entry_rows, entry_of, lists.n_listed, np.int32(lists.most_experts + 1))
    run = router_kernel(type_name, c.n_experts, c.n_used, n_rows, staged, device.target)
    arguments = (router, shared_router, *sizes, x, logits, shared_gate, counter, ids, weights, *listed)
    return Launch(device, run, shape, arguments, programmatic)
