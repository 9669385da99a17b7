"""Products of a few activation rows with quantised weights: dp4a, eight threads an output row.

The order of host/products.py: group g belongs to lane g mod 8, a lane is a chain of fused multiply-adds in ascending g, the
eight lanes meet in the eight-lane tree.  A thread is a lane.  A warp takes four output rows, copies their packed bytes to
shared memory some stages ahead and unpacks each group once for all its activation rows.

Work is laid out as on the host: blockIdx.y is the i-th listed expert, its entries are starts[i] .. starts[i+1]-1, entry e
multiplies activation row entry_rows[e].  The number of listed experts lies in device memory; surplus blocks leave.

Shapes: raw uint8 [...]; experts int32 [n]; starts int32 [n+1]; entry_rows int32 [entries]; codes int8 [rows * 32 n_groups]
(turned ones for a turned reader); scales float32, sums int32 [rows * n_groups]; out float32 [entries * n_out].
Does not know: routers, layers.
"""

from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.readers import reader_of
from strata.cuda.seam import (
    Target, add, copies, dp4a, exchange_float, fma, jit, kernel, launch_dependents, load_four_words, mul, sync_warp,
    wait_for_dependency,
)
from strata.cuda.staging import staging_of
from strata.formats.table import FORMATS

ZERO = np.float32(0.0)
WARPS = 4
STAGES = 4
ROWS_PER_WARP = 4
ROWS_PER_BLOCK = WARPS * ROWS_PER_WARP
THREADS = 32 * WARPS
MOST_ROWS = 4
"""Activation rows that share one pass over the weights."""
MIN_BLOCKS = {1: 8, 2: 6, 3: 5, 4: 4}
"""Blocks that a multiprocessor should hold, by activation rows: bounds the registers."""


def grid_of(n_out: int, n_experts: int) -> tuple[int, int]:
    """Return the grid for n_out output rows and at most n_experts listed experts."""
    return (n_out + ROWS_PER_BLOCK - 1) // ROWS_PER_BLOCK, n_experts


@jit
def tree_of_lanes(total):
    """Sum the eight lanes that eight neighbouring threads hold; every one of them gets the sum."""
    total = add(total, exchange_float(total, np.int32(4)))
    total = add(total, exchange_float(total, np.int32(2)))
    return add(total, exchange_float(total, np.int32(1)))


def _group_step(reader, split_scales, has_offset, n_rows):
    """Build `step(raw, at, group, g, n_groups, codes, scales, sums, rows, lanes)`: one group for n_rows activation rows."""
    word, unpack_scales, bias = reader.word, reader.scales, reader.bias

    @jit
    def step(raw, at, group, g, n_groups, codes, scales, sums, rows, lanes):
        w0, w1, w2, w3 = word(raw, at, group, 0), word(raw, at, group, 1), word(raw, at, group, 2), word(raw, at, group, 3)
        w4, w5, w6, w7 = word(raw, at, group, 4), word(raw, at, group, 5), word(raw, at, group, 6), word(raw, at, group, 7)
        d, s0, s1, offset = unpack_scales(raw, at, group)
        for r in range(n_rows):
            place = rows[r] * n_groups + g
            x0, x1, x2, x3 = load_four_words(codes, 32 * np.int64(place))
            x4, x5, x6, x7 = load_four_words(codes, 32 * np.int64(place) + 16)
            dx = scales[place]
            first = np.int32(0)
            if bias != 0:
                first = np.int32(-bias * sums[place])
            first = dp4a(w3, x3, dp4a(w2, x2, dp4a(w1, x1, dp4a(w0, x0, first))))
            if split_scales:
                second = dp4a(w7, x7, dp4a(w6, x6, dp4a(w5, x5, dp4a(w4, x4, np.int32(0)))))
                exact = np.int32(s0 * first + s1 * second)
            else:
                exact = np.int32(s0 * dp4a(w7, x7, dp4a(w6, x6, dp4a(w5, x5, dp4a(w4, x4, first)))))
            total = fma(mul(d, dx), np.float32(exact), lanes[r])
            if has_offset:
                total = fma(mul(offset, dx), np.float32(sums[place]), total)
            lanes[r] = total

    return step


def _stage_copier(staging, copy16):
    """Build `fetch(shared, slot, raw, start, n_bytes, lane)`: eight threads copy one row's part of a stage."""
    pieces = staging.pieces

    @jit
    def fetch(shared, slot, raw, start, n_bytes, lane):
        base = start & np.int64(-16)
        n_pieces = np.int32((start + n_bytes - base + 15) >> 4)
        for first in range(0, pieces, 8):
            piece = np.int32(first + lane)
            if piece < n_pieces:
                copy16(shared, slot + 16 * piece, raw, base + 16 * piece)

    return fetch


def shared_bytes(type_id: int) -> int:
    """Return the dynamic shared memory of a block, in bytes."""
    return WARPS * STAGES * ROWS_PER_WARP * staging_of(FORMATS[type_id]).pitch


def _warp_product(form, n_rows, target):
    """Build `product(shared, raw, start, row_bytes, n_groups, mine, lane, wait_first, codes, scales, sums, rows, lanes)`."""
    reader, staging = reader_of(form), staging_of(form)
    step = _group_step(reader, form.split_scales, form.has_offset, n_rows)
    move = copies(target, STAGES - 2)
    fetch, commit, wait = _stage_copier(staging, move.copy16), move.commit, move.wait
    units, unit_bytes, stage_bytes = staging.units, staging.unit_bytes, staging.stage_bytes
    groups_per_block, block_bytes = staging.groups_per_block, form.block_bytes
    slot_bytes = ROWS_PER_WARP * staging.pitch

    @jit
    def fetch_first(shared, raw, start, end, mine, lane):
        for stage in range(STAGES - 1):
            at = start + stage * stage_bytes
            if at < end:
                fetch(shared, mine + stage * slot_bytes, raw, at, min(np.int64(stage_bytes), end - at), lane)
            commit()

    @jit
    def product(shared, raw, start, end, n_groups, mine, lane, codes, scales, sums, rows, lanes):
        per_stage = 8 * units
        n_stages = np.int32((n_groups + per_stage - 1) // per_stage)
        block_at, group = (lane // groups_per_block) * block_bytes, lane % groups_per_block
        slot, ahead = np.int32(0), np.int32(STAGES - 1)
        for stage in range(n_stages):
            wait()
            sync_warp()
            at = start + np.int64(stage + STAGES - 1) * stage_bytes
            if at < end:
                fetch(shared, mine + ahead * slot_bytes, raw, at, min(np.int64(stage_bytes), end - at), lane)
            commit()
            before = np.int32((start + np.int64(stage) * stage_bytes) & 15)
            base = mine + slot * slot_bytes + before + block_at
            g = np.int32(stage * per_stage + lane)
            if np.int32((stage + 1) * per_stage) <= n_groups:
                for unit in range(units):
                    step(shared, base + unit * unit_bytes, group, np.int32(g + 8 * unit), n_groups, codes, scales, sums, rows, lanes)
            else:
                while g < n_groups:
                    step(shared, base, group, g, n_groups, codes, scales, sums, rows, lanes)
                    base, g = np.int32(base + unit_bytes), np.int32(g + 8)
            slot = np.int32(slot + 1) if slot < STAGES - 1 else np.int32(0)
            ahead = np.int32(ahead + 1) if ahead < STAGES - 1 else np.int32(0)

    return fetch_first, product


@cache
def dense_rows(type_id: int, n_rows: int, target: Target):
    """Return the kernel for one matrix and exactly n_rows (1 .. MOST_ROWS) activation rows.

    kernel(raw, row_bytes, n_groups, n_out, codes, scales, sums, out); weights are fetched before the previous kernel's
    results are waited for.
    """
    form = FORMATS[type_id]
    fetch_first, product = _warp_product(form, n_rows, target)
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    pitch = staging_of(form).pitch

    @kernel(THREADS, MIN_BLOCKS[n_rows])
    def run(raw, row_bytes, n_groups, n_out, codes, scales, sums, out):
        shared = cuda.shared.array(0, types.uint8)
        thread = np.int32(cuda.threadIdx.x)
        lane, in_warp, warp = thread & 7, (thread >> 3) & 3, thread >> 5
        n = np.int32(np.int32(cuda.blockIdx.x) * ROWS_PER_BLOCK + ROWS_PER_WARP * warp + in_warp)
        row = n if n < n_out else np.int32(n_out - 1)
        start = np.int64(row) * row_bytes
        mine = np.int32((warp * STAGES * ROWS_PER_WARP + in_warp) * pitch)
        fetch_first(shared, raw, start, start + row_bytes, mine, lane)
        go_on()
        wait_before()
        rows = cuda.local.array(n_rows, np.int32)
        lanes = cuda.local.array(n_rows, np.float32)
        for r in range(n_rows):
            rows[r] = r
            lanes[r] = ZERO
        product(shared, raw, start, start + row_bytes, n_groups, mine, lane, codes, scales, sums, rows, lanes)
        for r in range(n_rows):
            total = tree_of_lanes(lanes[r])
            if lane == 0 and n < n_out:
                out[np.int64(r) * n_out + n] = total

    return run


@cache
def expert_rows(type_id: int, n_rows: int, target: Target):
    """Return the kernel for listed experts, n_rows (1 .. MOST_ROWS) entries per pass over an expert's weights.

    kernel(raw, expert_bytes, row_bytes, n_groups, n_out, n_listed, experts, starts, entry_rows, codes, scales, sums, out).
    """
    form = FORMATS[type_id]
    fetch_first, product = _warp_product(form, n_rows, target)
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    pitch = staging_of(form).pitch

    @kernel(THREADS, MIN_BLOCKS[n_rows])
    def run(raw, expert_bytes, row_bytes, n_groups, n_out, n_listed, experts, starts, entry_rows, codes, scales, sums, out):
        shared = cuda.shared.array(0, types.uint8)
        listed = cuda.blockIdx.y
        go_on()
        wait_before()
        if listed >= n_listed[0]:
            return
        thread = np.int32(cuda.threadIdx.x)
        lane, in_warp, warp = thread & 7, (thread >> 3) & 3, thread >> 5
        n = np.int32(np.int32(cuda.blockIdx.x) * ROWS_PER_BLOCK + ROWS_PER_WARP * warp + in_warp)
        row = n if n < n_out else np.int32(n_out - 1)
        start = np.int64(experts[listed]) * expert_bytes + np.int64(row) * row_bytes
        mine = np.int32((warp * STAGES * ROWS_PER_WARP + in_warp) * pitch)
        rows = cuda.local.array(n_rows, np.int32)
        lanes = cuda.local.array(n_rows, np.float32)
        last = starts[listed + 1]
        for first in range(starts[listed], last, n_rows):
            sync_warp()
            fetch_first(shared, raw, start, start + row_bytes, mine, lane)
            for r in range(n_rows):
                entry = np.int32(first + r)
                rows[r] = entry_rows[entry if entry < last else np.int32(last - 1)]
                lanes[r] = ZERO
            product(shared, raw, start, start + row_bytes, n_groups, mine, lane, codes, scales, sums, rows, lanes)
            for r in range(n_rows):
                total = tree_of_lanes(lanes[r])
                if lane == 0 and n < n_out and first + r < last:
                    out[np.int64(first + r) * n_out + n] = total

    return run
