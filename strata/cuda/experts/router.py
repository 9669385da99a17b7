"""Router and shared gate of a few rows, the choice of experts and the grouped entries, in one launch.

Four outputs a block, 64 threads each, in the order of float_rows.py (256 lanes, the halving tree); output E is the shared
expert's gate.  Weight rows are fetched before the previous kernel has ended.  One block more has no outputs: the others post their
logits to it, and it chooses and groups (choosing.py).

Shapes, flat: router raw bytes of [E, n_in], shared_router of [1, n_in], of one float type; x, rows of n_in float32; logits [rows,
E]; shared_gate [rows]; posted int32 [rows, E], EMPTY between launches.  Does not know: experts' matrices.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.experts.choosing import last_block
from strata.cuda.experts.expert_products import most_shared_bytes
from strata.cuda.experts.ranking import SCRATCH
from strata.cuda.experts.router_rows import row_logits
from strata.cuda.experts.routing import LARGEST_LIST
from strata.cuda.floats import float_wide_rows
from strata.cuda.floats.float_copies import row_copier, row_pitch
from strata.cuda.floats.float_rows import MEETING, THREADS_PER_OUTPUT, WIDEN_FOUR, fuse_four, warps_meeting
from strata.cuda.machine.addresses import copy_series, global_address, shared_address, shared_four_floats
from strata.cuda.machine.posting import post
from strata.cuda.machine.seam import Target, copies, jit, kernel, launch_dependents, load_four_floats, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.packed.products import Lists
from strata.model.config import ModelConfig
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)
TEAMS = 4
"""Outputs of a block."""
THREADS = THREADS_PER_OUTPUT * TEAMS
WARPS, COPY_STEP = THREADS // 32, 16 * THREADS
MOST_ROWS = 8
STATIC_BYTES = 4 * (2 * LARGEST_LIST + WARPS * SCRATCH + WARPS)
"""Shared memory of the choice and the grouping, at most."""
PLAIN, STAGED, BY_ROWS = "plain", "staged", "by rows"
"""Ways of a block's products: 64 threads an output, activations read from outside or staged in shared memory; or as in router_rows.py."""
BY_ROWS_FROM = 3


def _weight_pitch(type_name: str, n_in: int) -> int:
    return row_pitch(n_in * WIDEN_FOUR[type_name][1])


def shared_bytes(type_name: str, n_in: int, n_rows: int, way: str) -> int:
    """Return the dynamic shared memory of a block, by the way of its products."""
    if way == BY_ROWS:
        return max(TEAMS * _weight_pitch(type_name, n_in), float_wide_rows.shared_bytes(type_name, n_in, n_rows, 1))
    return (4 * n_rows * n_in if way == STAGED else 0) + TEAMS * (_weight_pitch(type_name, n_in) + 4 * MEETING * n_rows)


def _advance(type_name: str, n_in: int, n_rows: int, staged: bool):
    """Build `advance(row_at, x_at, x, thread, lanes)`: all elements of all rows; as n_in is known, no read waits for another."""
    widen_four, value_bytes = WIDEN_FOUR[type_name]
    n_steps, is_ragged = -(-n_in // WIDE), n_in % WIDE != 0

    @jit
    def advance(row_at, x_at, x, thread, lanes):
        for step in range(n_steps):
            i = np.int32(WIDE * step + 4 * thread)
            if not is_ragged or i < n_in:
                w0, w1, w2, w3 = widen_four(row_at + i * value_bytes)
                for r in range(n_rows):
                    if staged:
                        x0, x1, x2, x3 = shared_four_floats(x_at + 4 * (r * n_in + i))
                    else:
                        x0, x1, x2, x3 = load_four_floats(x, 4 * (np.int64(r) * n_in + i))
                    fuse_four(w0, w1, w2, w3, x0, x1, x2, x3, lanes, 4 * r)

    return advance


def _totals(n_rows: int, n_experts: int):
    """Build `store_totals(lanes, floats, meeting, thread, n, logits, posted, shared_gate)`: the sums over 64 threads' lanes, as in float_rows.py."""
    hand_over, total_of = warps_meeting(n_rows)

    @jit
    def store_totals(lanes, floats, meeting, thread, n, logits, posted, shared_gate):
        warp, in_warp = thread >> 5, thread & 31
        hand_over(lanes, floats, meeting, warp, in_warp)
        cuda.syncthreads()
        for r in range(n_rows):
            if (r & 1) == warp:
                total = total_of(lanes, floats, meeting, r, in_warp)
                if in_warp == 0 and n < n_experts:
                    post(posted, np.int64(r) * n_experts + n, total)
                    logits[np.int64(r) * n_experts + n] = total
                if in_warp == 0 and n == n_experts:
                    shared_gate[r] = total

    return store_totals


@cache
def router_kernel(type_name: str, n_in: int, n_experts: int, n_used: int, n_rows: int, way: str, target: Target):
    """Return the kernel for exactly n_rows rows; grid (E + 1) / TEAMS, rounded up, and one; THREADS threads.

    kernel(router, shared_router, x, logits, shared_gate, posted, ids, weights, experts, starts, entry_rows, entry_of,
    n_listed, n_starts).
    """
    value_bytes, store_totals = WIDEN_FOUR[type_name][1], _totals(n_rows, n_experts)
    staged, by_rows, pitch = way == STAGED, way == BY_ROWS, _weight_pitch(type_name, n_in)
    advance, all_outputs = _advance(type_name, n_in, n_rows, staged), row_logits(type_name, n_in, n_experts, n_rows, pitch, target) if by_rows else None
    send_weights = row_copier(n_in * value_bytes, THREADS_PER_OUTPUT, target)
    commit, wait_all = copies(target, 0).commit, copies(target, 0).wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    finish = last_block(n_experts, n_used, n_rows, THREADS, target)
    n_lanes, x_bytes = 4 * n_rows, 4 * n_rows * n_in if staged else 0
    copy_rows = copy_series(16, -(-x_bytes // COPY_STEP), COPY_STEP, COPY_STEP, COPY_STEP, target)

    @kernel(THREADS)
    def run(
        router, shared_router, x, logits, shared_gate, posted, ids, weights, experts, starts, entry_rows, entry_of, n_listed,
        n_starts,
    ):
        shared, floats = shared_address(cuda.shared.array(0, types.uint8)), cuda.shared.array(0, types.float32)
        lanes, whole = cuda.local.array(n_lanes, np.float32), np.int32(cuda.threadIdx.x)
        if np.int32(cuda.blockIdx.x) == np.int32(cuda.gridDim.x) - 1:
            go_on()
            wait_before()
            finish(posted, ids, weights, experts, starts, entry_rows, entry_of, n_listed, n_starts, whole)
            return
        thread, team = whole & 63, whole >> 6
        n = np.int32(np.int32(cuda.blockIdx.x) * TEAMS + team)
        place = global_address(shared_router) if n == n_experts else global_address(router)
        row_at = send_weights(place, shared + (x_bytes + team * pitch), n if n < n_experts else np.int32(0), thread)
        commit()
        go_on()
        wait_before()
        if by_rows:
            all_outputs(shared + 0, x, thread, team, np.int32(n - team), logits, posted, shared_gate)
            return
        if staged:
            copy_rows(shared + 16 * whole, global_address(x) + 16 * whole, np.int32(x_bytes - 16 * whole))
            commit()
        for v in range(n_lanes):
            lanes[v] = ZERO
        wait_all()
        cuda.syncthreads()
        advance(row_at, shared + 0, x, thread, lanes)
        meeting = np.int32((x_bytes + TEAMS * pitch) >> 2) + team * (n_rows * MEETING)
        store_totals(lanes, floats, meeting, thread, n, logits, posted, shared_gate)

    return run


def _way_of(device: CudaDevice, type_name: str, n_in: int, n_rows: int) -> str:
    room = most_shared_bytes(device) - STATIC_BYTES
    if n_rows >= BY_ROWS_FROM and float_wide_rows.takes(type_name, n_in, n_rows, room) and shared_bytes(type_name, n_in, n_rows, BY_ROWS) <= room:
        return BY_ROWS
    return STAGED if shared_bytes(type_name, n_in, n_rows, STAGED) <= room else PLAIN


def fits(device: CudaDevice, config: ModelConfig, type_names: tuple[str, str], n_in: int, n_rows: int) -> bool:
    """Whether the launch takes this window; `products.floats` and `routing` take any."""
    router, shared = type_names
    return (
        router == shared and n_in % 4 == 0 and n_rows <= MOST_ROWS and n_rows * config.n_used <= THREADS
        and config.n_used <= 32 and config.n_used <= config.n_experts <= LARGEST_LIST
        and shared_bytes(router, n_in, n_rows, PLAIN) + STATIC_BYTES <= most_shared_bytes(device)
    )


def launch_router(
    device: CudaDevice, config: ModelConfig, type_name: str, router, shared_router, n_in: int, x, n_rows: int, logits, shared_gate, posted,
    ids, weights, lists: Lists, entry_of, programmatic: bool = False,
) -> Launch:
    """Fill logits [rows, E], shared_gate [rows], ids and weights [rows, K], `lists` and entry_of [rows, K]."""
    c = config
    require(fits(device, c, (type_name, type_name), n_in, n_rows), f"{n_rows} rows of {n_in}", "the fused router does not take them", "use routing")
    require(n_rows * c.n_used <= lists.most_entries, f"{n_rows * c.n_used} entries", f"the lists were made for {lists.most_entries}", "make longer lists")
    way = _way_of(device, type_name, n_in, n_rows)
    shape = Shape((c.n_experts // TEAMS + 2, 1), THREADS, shared_bytes(type_name, n_in, n_rows, way))
    listed = (lists.experts, lists.starts, lists.entry_rows, entry_of, lists.n_listed, np.int32(lists.most_experts + 1))
    run = router_kernel(type_name, n_in, c.n_experts, c.n_used, n_rows, way, device.target)
    arguments = (router, shared_router, x, logits, shared_gate, posted, ids, weights, *listed)
    return Launch(device, run, shape, arguments, programmatic)
