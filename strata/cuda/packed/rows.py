"""Products of a few activation rows with quantised weights: dp4a, eight threads an output row.

The order of host/products.py: group g belongs to lane g mod 8, a lane is a chain of fused multiply-adds in ascending g, the
eight lanes meet in the eight-lane tree.  A thread is a lane.  A warp takes four output rows at a time, copies their packed
bytes to shared memory some stages ahead and unpacks each group once for all its activation rows; a block does so for
`n_turns` times ROWS_PER_TURN output rows, with the activation rows in shared memory throughout.

Listed experts are laid out as on the host: blockIdx.y is the i-th listed expert, its entries are starts[i] .. starts[i+1]-1,
entry e multiplies activation row entry_rows[e].  Their number lies in device memory; surplus blocks leave.

Shapes: raw uint8 [...]; experts int32 [n]; starts int32 [n+1]; entry_rows int32 [entries]; codes int8 [rows * 32 n_groups]
(turned ones for a turned reader); scales float32, sums int32 [rows * n_groups]; out float32 [entries * n_out].
Does not know: routers, layers.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.machine.addresses import global_address, shared_address
from strata.cuda.machine.seam import Target, copies, jit, kernel, launch_dependents, sync_warp, wait_for_dependency
from strata.cuda.packed.readers import reader_of
from strata.cuda.packed.row_parts import group_step, tree_of_lanes
from strata.cuda.packed.staging import UNIT, activation_bytes, row_stager, rows_are_aligned, staging_of, weight_fetcher
from strata.formats.contract import WeightFormat
from strata.formats.table import FORMATS

ZERO = np.float32(0.0)
WARPS = 4
STAGES = 4
ROWS_PER_WARP = 4
ROWS_PER_TURN = WARPS * ROWS_PER_WARP
THREADS = 32 * WARPS
FEW_ROWS, MOST_ROWS = 4, 8
"""Activation rows that share one pass over the weights: the first on every card, the second where a block's shared memory holds them."""
MIN_BLOCKS = {1: 8, 2: 6, 3: 5, 4: 4, 5: 4, 6: 4, 7: 4, 8: 4}
"""Blocks that a multiprocessor should hold, by activation rows: bounds the registers."""
EXPERT_BLOCKS = 7
"""The same of listed experts, whose stages of some formats need more registers."""
MOST_TURNS = 8
LEAST_BLOCKS = 1024
"""Blocks of a launch below which a block takes fewer turns."""
DEEP_STAGES, MIDDLE_STAGES, DEEP_BLOCKS, DEEP_BYTES = 13, 8, 264, 112_000
"""Launches of at most DEEP_BLOCKS blocks, two for each multiprocessor of a large card, keep DEEP_STAGES or MIDDLE_STAGES stages, where a
block then fits into DEEP_BYTES of shared memory: most of a row is on its way before the previous kernel has ended."""
EARLY, DEEP_EARLY = 2, 12
"""Stages that are sent before the previous kernel's results are waited for, of STAGES and of more: all but the last, at most.  What is
sent early delays the activation rows behind it; deep stages have few blocks, whose weights wait long for their input."""
GO_EARLY = True
"""Whether blocks of the next kernel may start, to fetch weights, as soon as all of a dense product's have started."""


def turns_of(n_out: int, n_experts: int = 1) -> int:
    """Return how many turns a block takes: enough blocks for every multiprocessor come first."""
    return max(1, min(MOST_TURNS, n_out * n_experts // (ROWS_PER_TURN * LEAST_BLOCKS)))


def grid_of(n_out: int, n_experts: int, n_turns: int) -> tuple[int, int]:
    """Return the grid for n_out output rows and at most n_experts listed experts."""
    return -(-n_out // (ROWS_PER_TURN * n_turns)), n_experts


def shared_bytes(type_id: int, n_rows: int, n_groups: int, stages: int = STAGES) -> int:
    """Return the dynamic shared memory of a block, in bytes."""
    return activation_bytes(n_rows, n_groups) + WARPS * stages * ROWS_PER_WARP * staging_of(FORMATS[type_id]).pitch


def takes(type_id: int, n_rows: int, n_groups: int, room: int) -> bool:
    """Whether these kernels take a product; `room`: the shared memory that a block can have."""
    return n_rows <= FEW_ROWS or n_rows <= MOST_ROWS and shared_bytes(type_id, n_rows, n_groups) <= min(DEEP_BYTES, room)


def stages_of(type_id: int, n_rows: int, n_groups: int, n_blocks: int, room: int) -> int:
    """Return how many stages a dense product's blocks keep: few blocks must have more of their weights on the way.

    `room`: the shared memory that a block can have.
    """
    most = min(DEEP_BYTES, room) if n_blocks <= DEEP_BLOCKS else 0
    depths = (stages for stages in (DEEP_STAGES, MIDDLE_STAGES) if shared_bytes(type_id, n_rows, n_groups, stages) <= most)
    return next(depths, STAGES)


def known_of(n_rows: int, n_groups: int) -> int:
    """Return the groups of a row where a kernel is made for them, else 0: in launches of one row each instruction before the products shows."""
    return n_groups if n_rows == 1 else 0


def early_of(stages: int) -> int:
    """Return how many of a block's stages are sent before the previous kernel's results are waited for."""
    return min(stages - 1, EARLY if stages == STAGES else DEEP_EARLY)


def _warp_products(form: WeightFormat, n_rows: int, target: Target, stages: int = STAGES, known_groups: int = 0):
    """Build `row_at(...)`: where sending begins; `send_early(...)`, `send_rest(...)`: the first stages; `wait_early()`; `multiply(...)`: all turns.

    What is sent between the two has landed behind `wait_early`.  first .. end - 1: the block's output rows, in whole turns; `own`: this
    thread's row in a turn; `matrix`: first byte of the matrix, `last` its last row.
    """
    reader, staging = reader_of(form), staging_of(form)
    step = group_step(reader, form.split_scales, form.has_offset, n_rows)
    move = copies(target, stages - 2)
    fetch, commit, wait = weight_fetcher(staging, 8, target), move.commit, move.wait
    units, unit_bytes, stage_bytes = staging.units, staging.unit_bytes, staging.stage_bytes
    groups_per_block, block_bytes, per_stage = staging.groups_per_block, form.block_bytes, 8 * staging.units
    is_aligned, is_whole = rows_are_aligned(form), known_groups > 0 and known_groups % (8 * staging.units) == 0
    slot_bytes = ROWS_PER_WARP * staging.pitch
    last_slot = (stages - 1) * slot_bytes

    @jit
    def row_at(weights, matrix, n, last, row_bytes):
        """What comes next where output row n begins: (n, its address, its bytes)."""
        return n, weights + (matrix + np.int64(min(n, last)) * row_bytes), np.int32(row_bytes)

    @jit
    def fetch_next(slot, weights, matrix, upcoming, end, last, row_bytes, lane):
        """Send one stage, if any is left, close its group of copies, and return what comes next: (output row, address, bytes of the row left)."""
        n, place, left = upcoming
        if n < end:
            before = np.int32(0) if is_aligned else np.int32(place & 15)
            fetch(slot + 16 * lane, place - before + 16 * lane, np.int32(left + before - 16 * lane), lane)
            place, left = place + stage_bytes, np.int32(left - stage_bytes)
            if left <= 0:
                n, place, left = row_at(weights, matrix, np.int32(n + ROWS_PER_TURN), last, row_bytes)
        commit()
        return n, place, left

    def sender(first_stage: int, last_stage: int):
        @jit
        def send(mine, weights, matrix, upcoming, end, last, row_bytes, lane):
            for ahead in range(first_stage, last_stage):
                upcoming = fetch_next(mine + ahead * slot_bytes, weights, matrix, upcoming, end, last, row_bytes, lane)
            return upcoming

        return send

    @jit
    def multiply(
        mine, weights, matrix, upcoming, first, end, last, row_bytes, n_groups, own, lane, codes_from, marks_from,
        codes_pitch, marks_pitch, n_out, first_entry, n_entries, lanes, out,
    ):
        block_at, group = (lane // groups_per_block) * block_bytes, lane % groups_per_block
        codes_from, marks_from = codes_from + 16 * lane, marks_from + 8 * lane
        slot, ahead = np.int32(0), np.int32(last_slot)
        while first < end:
            n = np.int32(first + own)
            before = np.int32(0) if is_aligned else np.int32((matrix + np.int64(min(n, last)) * row_bytes) & 15)
            codes_at, marks_at = codes_from, marks_from
            moved, left = np.int32(0), np.int32(n_groups)
            while left > 0:
                wait()
                sync_warp()
                upcoming = fetch_next(mine + ahead, weights, matrix, upcoming, end, last, row_bytes, lane)
                at = mine + (slot + (np.int32(0) if is_aligned else (before + moved) & 15) + block_at)
                if is_whole or left >= per_stage:
                    for unit in range(units):
                        step(at + unit * unit_bytes, group, codes_at + unit * UNIT, codes_pitch, marks_at + unit * 64, marks_pitch, lanes)
                else:
                    for unit in range(units):
                        if np.int32(lane + 8 * unit) < left:
                            step(at + unit * unit_bytes, group, codes_at + unit * UNIT, codes_pitch, marks_at + unit * 64, marks_pitch, lanes)
                moved, left = np.int32((moved + stage_bytes) & 15), np.int32(left - per_stage)
                codes_at, marks_at = codes_at + units * UNIT, marks_at + units * 64
                ahead, slot = slot, np.int32(slot + slot_bytes) if slot < last_slot else np.int32(0)
            for r in range(n_rows):
                total = tree_of_lanes(lanes[r])
                lanes[r] = ZERO
                if lane == 0 and n < n_out and r < n_entries:
                    out[np.int64(first_entry + r) * n_out + n] = total
            first = np.int32(first + ROWS_PER_TURN)

    early = early_of(stages)
    return SimpleNamespace(
        row_at=row_at, send_early=sender(0, early), send_rest=sender(early, stages - 1), wait_early=copies(target, stages - 1 - early).wait,
        multiply=multiply,
    )


def dense_block(form: WeightFormat, n_rows: int, target: Target, stages: int = STAGES, known_groups: int = 0):
    """Build `compute(block, weights, row_bytes, n_groups, n_out, n_turns, codes, scales, sums, out)`: one block of one matrix.

    `block` counts the matrix's blocks, `weights` is its address.  Exactly n_rows (1 .. MOST_ROWS) activation rows.  Some
    stages are sent before the previous kernel's results are waited for, the rest behind the activation rows, which therefore wait
    for no more weights than those.  `known_groups` (0: any number): those of a row, where the kernel is made for them.
    """
    parts, stage_row = _warp_products(form, n_rows, target, stages, known_groups), row_stager(THREADS, target, known_groups)
    row_at, send_early, send_rest, wait_early, multiply = parts.row_at, parts.send_early, parts.send_rest, parts.wait_early, parts.multiply
    commit = copies(target, 0).commit
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    pitch = staging_of(form).pitch

    @jit
    def compute(block, weights, row_bytes, n_groups, n_out, n_turns, codes, scales, sums, out):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        thread = np.int32(cuda.threadIdx.x)
        lane, in_warp, warp = thread & 7, (thread >> 3) & 3, thread >> 5
        first = np.int32(block) * np.int32(n_turns * ROWS_PER_TURN)
        end = np.int32(min(np.int32(first + n_turns * ROWS_PER_TURN), np.int32((n_out + ROWS_PER_TURN - 1) & -ROWS_PER_TURN)))
        own, last, matrix = ROWS_PER_WARP * warp + in_warp, np.int32(n_out - 1), np.int64(0)
        n_units = np.int32((n_groups + 7) >> 3)
        codes_pitch, marks_pitch = np.int64(n_units * 256), np.int64(n_units * 64)
        marks = shared + n_rows * codes_pitch
        mine = marks + (n_rows * marks_pitch + (warp * stages * ROWS_PER_WARP + in_warp) * pitch)
        upcoming = row_at(weights, matrix, np.int32(first + own), last, row_bytes)
        upcoming = send_early(mine, weights, matrix, upcoming, end, last, row_bytes, lane)
        if GO_EARLY:
            go_on()
        wait_before()
        lanes = cuda.local.array(n_rows, np.float32)
        codes_place, scales_place, sums_place = global_address(codes), global_address(scales), global_address(sums)
        for r in range(n_rows):
            lanes[r] = ZERO
            stage_row(shared + r * codes_pitch, marks + r * marks_pitch, codes_place, scales_place, sums_place, np.int32(r), n_groups, thread)
        commit()
        upcoming = send_rest(mine, weights, matrix, upcoming, end, last, row_bytes, lane)
        wait_early()
        cuda.syncthreads()
        multiply(
            mine, weights, matrix, upcoming, first, end, last, row_bytes, n_groups, own, lane, shared, marks,
            codes_pitch, marks_pitch, n_out, np.int32(0), np.int32(n_rows), lanes, out,
        )
        if not GO_EARLY:
            go_on()

    return compute


@cache
def dense_rows(type_id: int, n_rows: int, stages: int, known_groups: int, target: Target):
    """Return the kernel for one matrix and exactly n_rows (1 .. MOST_ROWS) activation rows, with stages of weights in flight.

    `known_groups`: as `known_of` gives them.

    kernel(raw, row_bytes, n_groups, n_out, n_turns, codes, scales, sums, out).
    """
    compute = dense_block(FORMATS[type_id], n_rows, target, stages, known_groups)

    @kernel(THREADS, MIN_BLOCKS[n_rows] if stages == STAGES else 1)
    def run(raw, row_bytes, n_groups, n_out, n_turns, codes, scales, sums, out):
        compute(cuda.blockIdx.x, global_address(raw), row_bytes, n_groups, n_out, n_turns, codes, scales, sums, out)

    return run


@cache
def expert_rows(type_id: int, target: Target):
    """Return the kernel for listed experts, one entry per pass over an expert's weights.

    kernel(raw, expert_bytes, row_bytes, n_groups, n_out, n_turns, n_listed, experts, starts, entry_rows, codes, scales,
    sums, out); later entries of an expert find its weights in the cache.
    """
    form = FORMATS[type_id]
    parts = _warp_products(form, 1, target)
    row_at, send_early, send_rest, multiply = parts.row_at, parts.send_early, parts.send_rest, parts.multiply
    move, stage_row = copies(target, 0), row_stager(THREADS, target)
    commit, wait_all = move.commit, move.wait
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    pitch = staging_of(form).pitch

    @kernel(THREADS, EXPERT_BLOCKS)
    def run(
        raw, expert_bytes, row_bytes, n_groups, n_out, n_turns, n_listed, experts, starts, entry_rows, codes, scales, sums, out
    ):
        shared, weights = shared_address(cuda.shared.array(0, types.uint8)), global_address(raw)
        listed = cuda.blockIdx.y
        thread = np.int32(cuda.threadIdx.x)
        lane, in_warp, warp = thread & 7, (thread >> 3) & 3, thread >> 5
        first = np.int32(cuda.blockIdx.x) * np.int32(n_turns * ROWS_PER_TURN)
        end = np.int32(min(np.int32(first + n_turns * ROWS_PER_TURN), np.int32((n_out + ROWS_PER_TURN - 1) & -ROWS_PER_TURN)))
        own, last = ROWS_PER_WARP * warp + in_warp, np.int32(n_out - 1)
        n_units = np.int32((n_groups + 7) >> 3)
        codes_pitch, marks_pitch = np.int64(n_units * 256), np.int64(n_units * 64)
        marks = shared + codes_pitch
        mine = marks + (marks_pitch + (warp * STAGES * ROWS_PER_WARP + in_warp) * pitch)
        lanes = cuda.local.array(1, np.float32)
        lanes[0] = ZERO
        wait_before()
        if listed >= n_listed[0]:
            return
        matrix = np.int64(experts[listed]) * expert_bytes
        codes_place, scales_place, sums_place = global_address(codes), global_address(scales), global_address(sums)
        for entry in range(starts[listed], starts[listed + 1]):
            cuda.syncthreads()
            upcoming = row_at(weights, matrix, np.int32(first + own), last, row_bytes)
            upcoming = send_early(mine, weights, matrix, upcoming, end, last, row_bytes, lane)
            upcoming = send_rest(mine, weights, matrix, upcoming, end, last, row_bytes, lane)
            stage_row(shared, marks, codes_place, scales_place, sums_place, entry_rows[entry], n_groups, thread)
            commit()
            wait_all()
            cuda.syncthreads()
            multiply(
                mine, weights, matrix, upcoming, first, end, last, row_bytes, n_groups, own, lane, shared, marks,
                codes_pitch, marks_pitch, n_out, np.int32(entry), np.int32(1), lanes, out,
            )
        go_on()

    return run
