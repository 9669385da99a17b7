"""The experts of a window of few rows in two launches: gate, up, silu(gate) * up and its codes; then down.

A block has 32 output rows of gate and the same 32 of up (two weight rows a thread, pairs.py), so that it owns a whole group of
the hidden row and codes it on the spot; for down it has DOWN_TURNS times 64 output rows.  blockIdx.y counts the shared expert
first, where it is in the launch, then the listed experts; a surplus block finds no entries, since starts beyond the listed experts
hold the number of entries (routing.py).  An expert's weights are read once for up to PASS_ROWS of its entries.  A window of one
row (n_pass = 1) has one entry an expert, the i-th of the i-th: its kernel reads the experts' numbers alone, and its surplus blocks
find a negative one (dispatching.py).  The shared expert's blocks fetch weights before the previous kernel has ended.

The entries of the listed experts are laid out as `products.Lists` says; entry first_shared + r is the shared expert's of row r.
Flat shapes: hidden codes [entries, F]; out float32 [entries, H].
Does not know: routers, the combination.
"""

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.addresses import global_address, shared_address
from strata.cuda.device import CudaDevice
from strata.cuda.group_codes import arrays_of, group_coder
from strata.cuda.launch import Launch, Shape
from strata.cuda.on_cuda import silu
from strata.cuda.pairs import (
    PASS_ROWS, SIDE_ROWS, STAGES, THREADS, pair_fetching, pair_products, shared_bytes, slots_of_warp,
)
from strata.cuda.products import Coded, Lists, Packed
from strata.cuda.readers import reader_of
from strata.cuda.seam import Target, copies, jit, kernel, launch_dependents, mul, wait_for_dependency
from strata.cuda.shapes import require
from strata.cuda.staging import row_stager, staging_of
from strata.formats.table import FORMATS

MIN_BLOCKS = 2
"""Blocks that a multiprocessor should hold: bounds the registers."""
DOWN_TURNS = 2
"""Turns of a block of down: with 2, the 11 experts of one row of width 2560 are 220 blocks."""
MOST_SHARED_BYTES = {(7, 5): 64 << 10, (8, 0): 163 << 10, (8, 7): 163 << 10, (9, 0): 227 << 10, (10, 0): 227 << 10}
OTHER_SHARED_BYTES = 99 << 10
"""Shared memory that a block may ask for, by compute capability, and where it is not listed."""


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """What a launch computes: listed experts, the shared expert's rows, or both.

    `listed` are banks of experts' matrices and `shared` single ones of the same format and shape; either may be None.  The shared
    expert's rows are entries first_shared, first_shared + 1 ... of hidden rows and outputs.
    """

    n_rows: int
    lists: Lists
    listed: tuple[Packed, ...] | None
    shared: tuple[Packed, ...] | None
    first_shared: int = 0

    @property
    def matrices(self) -> tuple[Packed, ...]:
        return self.listed or self.shared

    @property
    def grid_y(self) -> int:
        n_listed = min(self.lists.most_experts, self.lists.most_entries) if self.listed else 0
        return n_listed + (1 if self.shared else 0)

    @property
    def n_pass(self) -> int:
        """Activation rows of a pass: windows of one row take a kernel that knows no others."""
        return 1 if self.n_rows == 1 else PASS_ROWS

    @property
    def sizes(self) -> tuple:
        """expert_bytes, row_bytes, n_groups, first_shared, n_rows, n_shared."""
        m = self.matrices[0]
        words = (m.row_bytes, m.n_groups, self.first_shared, self.n_rows, 1 if self.shared else 0)
        return np.int64(m.expert_bytes), *(np.int32(word) for word in words)


def most_shared_bytes(device: CudaDevice) -> int:
    """Return the shared memory that a block may ask for on a card."""
    return MOST_SHARED_BYTES.get(device.card.capability, OTHER_SHARED_BYTES)


def fits(device: CudaDevice, matrix: Packed, n_rows: int) -> bool:
    """Whether a block's stages and activation rows go into a card's shared memory; `products.listed` takes any."""
    n_pass = 1 if n_rows == 1 else PASS_ROWS
    return shared_bytes(matrix.type_id, n_pass, matrix.n_groups) + 4 * n_pass * SIDE_ROWS <= most_shared_bytes(device)


def _common(type_id: int, n_pass: int, target: Target) -> SimpleNamespace:
    """Build what both kernels share: `places`, `stage_rows`, and the copies' ends; the products for one row and for n_pass."""
    form, stage_row = FORMATS[type_id], row_stager(THREADS, target)
    staging, of_warp = staging_of(form), slots_of_warp(type_id)
    per_stage, stage_bytes, pitch = 8 * staging.units, staging.stage_bytes, staging.pitch
    rows_first, all_done = copies(target, STAGES - 1), copies(target, 0)

    @jit
    def places(shared, thread, n_groups):
        """Return (codes pitch, where scales and sums lie, their pitch, this thread's first slot, bytes of a row's stages)."""
        n_units = np.int32((n_groups + 7) >> 3)
        codes_pitch, marks_pitch = np.int64(n_units * 256), np.int64(n_units * 64)
        marks = shared + n_pass * codes_pitch
        mine = marks + (n_pass * marks_pitch + ((thread >> 5) * of_warp + ((thread >> 3) & 3) * pitch))
        return codes_pitch, marks, marks_pitch, mine, np.int32((n_groups + per_stage - 1) // per_stage * stage_bytes)

    return SimpleNamespace(
        places=places, stage_row=stage_row, begin=pair_fetching(form, target).begin, commit=all_done.commit, wait_rows=rows_first.wait,
        wait_all=all_done.wait, one=pair_products(form, 1, target), several=pair_products(form, n_pass, target),
    )


@cache
def gate_up_kernel(type_id: int, n_pass: int, target: Target):
    """Return the kernel of gate, up, activation and codes; grid (F / 32, shared expert + listed experts), THREADS threads.

    kernel(gate, up, shared_gate, shared_up, expert_bytes, row_bytes, n_groups, first_shared, n_rows, n_shared, experts,
    starts, entry_rows, codes, scales, sums, hidden_codes, hidden_turned, hidden_scales, hidden_sums).  Rows of a pass beyond an
    expert's entries meet whatever lies in shared memory; nobody reads their sums.
    """
    parts, code_group = _common(type_id, n_pass, target), group_coder(target)
    places, stage_row, begin, commit = parts.places, parts.stage_row, parts.begin, parts.commit
    wait_rows, wait_all, one, several = parts.wait_rows, parts.wait_all, parts.one, parts.several
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    n_hidden = n_pass * SIDE_ROWS

    @kernel(THREADS, MIN_BLOCKS)
    def run(
        gate, up, shared_gate, shared_up, expert_bytes, row_bytes, n_groups, first_shared, n_rows, n_shared, experts, starts,
        entry_rows, codes, scales, sums, hidden_codes, hidden_turned, hidden_scales, hidden_sums,
    ):
        shared, hidden = shared_address(cuda.shared.array(0, types.uint8)), cuda.shared.array(n_hidden, np.float32)
        left, right = cuda.local.array(n_pass, np.float32), cuda.local.array(n_pass, np.float32)
        thread = np.int32(cuda.threadIdx.x)
        lane, own = thread & 7, thread >> 3
        codes_pitch, marks, marks_pitch, mine, all_bytes = places(shared, thread, n_groups)
        listed = np.int32(np.int32(cuda.blockIdx.y) - n_shared)
        is_shared = listed < 0
        left_from = global_address(shared_gate) if is_shared else global_address(gate)
        right_from = global_address(shared_up) if is_shared else global_address(up)
        start = np.int64(np.int32(cuda.blockIdx.x) * SIDE_ROWS + own) * row_bytes
        upcoming = (start, start, np.int32(0), np.int32(0))
        if is_shared:
            upcoming = begin(mine, left_from, right_from, start, start, start, np.int64(0), row_bytes, all_bytes, np.int32(1), lane)
        go_on()
        wait_before()
        first, end = np.int32(first_shared), np.int32(first_shared + n_rows)
        if not is_shared:
            first, end = listed, np.int32(listed + 1)
            if n_pass > 1:
                first, end = np.int32(starts[listed]), np.int32(starts[listed + 1])
            elif experts[listed] < 0:
                return
            start += np.int64(experts[listed]) * expert_bytes
        codes_from, scales_from, sums_from = global_address(codes), global_address(scales), global_address(sums)
        for entry in range(first, end, n_pass):
            n_here = min(np.int32(n_pass), np.int32(end - entry))
            for r in range(n_here):
                row = np.int32(entry + r - first_shared) if is_shared else np.int32(0)
                if n_pass > 1 and not is_shared:
                    row = np.int32(entry_rows[entry + r])
                stage_row(shared + r * codes_pitch, marks + r * marks_pitch, codes_from, scales_from, sums_from, row, n_groups, thread)
            commit()
            if is_shared and entry == first:
                wait_all()
            else:
                upcoming = begin(mine, left_from, right_from, start, start, start, np.int64(0), row_bytes, all_bytes, np.int32(1), lane)
                wait_rows()
            cuda.syncthreads()
            if n_pass > 1 and n_here > 1:
                several(
                    mine, mine, left_from, right_from, start, start, upcoming, start, np.int64(0), row_bytes, all_bytes, n_groups,
                    np.int32(1), lane, shared, marks, codes_pitch, marks_pitch, left, right,
                )
            else:
                one(
                    mine, mine, left_from, right_from, start, start, upcoming, start, np.int64(0), row_bytes, all_bytes, n_groups,
                    np.int32(1), lane, shared, marks, codes_pitch, marks_pitch, left, right,
                )
            for r in range(n_pass):
                if lane == 0 and r < n_here:
                    hidden[r * SIDE_ROWS + own] = mul(silu(left[r]), right[r])
            cuda.syncthreads()
            r = thread >> 5
            if r < n_here:
                place = (np.int64(entry) + r) * np.int32(cuda.gridDim.x) + np.int32(cuda.blockIdx.x)
                code_group(hidden[thread], thread & 31, place, hidden_codes, hidden_turned, hidden_scales, hidden_sums)

    return run


@cache
def down_kernel(type_id: int, n_pass: int, n_turns: int, target: Target):
    """Return the kernel of down; grid (H / (64 n_turns), rounded up; shared expert + listed experts), THREADS threads.

    kernel(down, shared_down, expert_bytes, row_bytes, n_groups, first_shared, n_rows, n_shared, n_out, experts, starts,
    codes, scales, sums, out): an entry's activation row is the entry's own.
    """
    parts = _common(type_id, n_pass, target)
    places, stage_row, begin, commit = parts.places, parts.stage_row, parts.begin, parts.commit
    wait_rows, wait_all, one, several = parts.wait_rows, parts.wait_all, parts.one, parts.several
    wait_before, go_on = wait_for_dependency(target), launch_dependents(target)
    per_turn = 2 * SIDE_ROWS

    @jit
    def store(left, right, n_here, entry, n, n_out, out):
        for r in range(n_pass):
            if r < n_here:
                at = (np.int64(entry) + r) * n_out + n
                if n < n_out:
                    out[at] = left[r]
                if n + SIDE_ROWS < n_out:
                    out[at + SIDE_ROWS] = right[r]

    @kernel(THREADS, MIN_BLOCKS)
    def run(
        down, shared_down, expert_bytes, row_bytes, n_groups, first_shared, n_rows, n_shared, n_out, experts, starts, codes, scales,
        sums, out,
    ):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        left, right = cuda.local.array(n_pass, np.float32), cuda.local.array(n_pass, np.float32)
        thread = np.int32(cuda.threadIdx.x)
        lane, own = thread & 7, thread >> 3
        codes_pitch, marks, marks_pitch, mine, all_bytes = places(shared, thread, n_groups)
        listed = np.int32(np.int32(cuda.blockIdx.y) - n_shared)
        is_shared = listed < 0
        weights = global_address(shared_down) if is_shared else global_address(down)
        first_n = np.int32(cuda.blockIdx.x) * np.int32(n_turns * per_turn)
        own_turns = min(np.int32(n_turns), np.int32((n_out - first_n + per_turn - 1) // per_turn))
        last, stride = np.int64(n_out - 1) * row_bytes, np.int64(row_bytes) * per_turn
        left_first = min(np.int64(first_n + own) * row_bytes, last)
        right_first = min(np.int64(first_n + own + SIDE_ROWS) * row_bytes, last)
        upcoming = (left_first, right_first, np.int32(0), np.int32(0))
        if is_shared:
            upcoming = begin(mine, weights, weights, left_first, right_first, last, stride, row_bytes, all_bytes, own_turns, lane)
        go_on()
        wait_before()
        first, end = np.int32(first_shared), np.int32(first_shared + n_rows)
        if not is_shared:
            first, end = listed, np.int32(listed + 1)
            if n_pass > 1:
                first, end = np.int32(starts[listed]), np.int32(starts[listed + 1])
            elif experts[listed] < 0:
                return
            matrix = np.int64(experts[listed]) * expert_bytes
            left_first, right_first, last = left_first + matrix, right_first + matrix, last + matrix
        codes_from, scales_from, sums_from = global_address(codes), global_address(scales), global_address(sums)
        for entry in range(first, end, n_pass):
            n_here = min(np.int32(n_pass), np.int32(end - entry))
            cuda.syncthreads()
            for r in range(n_here):
                stage_row(
                    shared + r * codes_pitch, marks + r * marks_pitch, codes_from, scales_from, sums_from, np.int32(entry + r), n_groups, thread
                )
            commit()
            if is_shared and entry == first:
                wait_all()
            else:
                upcoming = begin(mine, weights, weights, left_first, right_first, last, stride, row_bytes, all_bytes, own_turns, lane)
                wait_rows()
            cuda.syncthreads()
            slot, left_start, right_start, n = mine, left_first, right_first, np.int32(first_n + own)
            for turn in range(own_turns):
                if n_pass > 1 and n_here > 1:
                    upcoming, slot = several(
                        mine, slot, weights, weights, left_start, right_start, upcoming, last, stride, row_bytes, all_bytes, n_groups,
                        own_turns, lane, shared, marks, codes_pitch, marks_pitch, left, right,
                    )
                else:
                    upcoming, slot = one(
                        mine, slot, weights, weights, left_start, right_start, upcoming, last, stride, row_bytes, all_bytes, n_groups,
                        own_turns, lane, shared, marks, codes_pitch, marks_pitch, left, right,
                    )
                if lane == 0:
                    store(left, right, n_here, entry, n, n_out, out)
                n = np.int32(n + per_turn)
                left_start, right_start = min(left_start + stride, last), min(right_start + stride, last)

    return run


def _codes_for(matrix: Packed, x: Coded) -> tuple:
    """Return the activation arrays in the order of the weights' words."""
    require(matrix.n_in == x.n, f"experts of {matrix.n_in} columns", f"the activations have {x.n}", "give rows of that width")
    return x.turned if reader_of(FORMATS[matrix.type_id]).turned else x.codes, x.scales, x.sums


def launch_gate_up(device: CudaDevice, experts: Experts, x: Coded, hidden: Coded, programmatic: bool = False) -> Launch:
    """hidden [entries, F] = codes of silu(gate . x) * (up . x); the matrices are (gate, up)."""
    m = experts.matrices[0]
    require(m.n_out % SIDE_ROWS == 0, f"expert width {m.n_out}", "codes come in groups of 32")
    (gate, up), (shared_gate, shared_up) = experts.listed or experts.shared, experts.shared or experts.listed
    shape = Shape((m.n_out // SIDE_ROWS, experts.grid_y), THREADS, shared_bytes(m.type_id, experts.n_pass, m.n_groups))
    lists = (experts.lists.experts, experts.lists.starts, experts.lists.entry_rows)
    arguments = (gate.raw, up.raw, shared_gate.raw, shared_up.raw, *experts.sizes, *lists, *_codes_for(m, x), *arrays_of(hidden))
    return Launch(device, gate_up_kernel(m.type_id, experts.n_pass, device.target), shape, arguments, programmatic)


def launch_down(device: CudaDevice, experts: Experts, hidden: Coded, out, programmatic: bool = False) -> Launch:
    """out float32 [entries, H] = down . hidden; the matrices are (down,)."""
    m = experts.matrices[0]
    (down,), (shared_down,) = experts.listed or experts.shared, experts.shared or experts.listed
    grid = (-(-m.n_out // (2 * SIDE_ROWS * DOWN_TURNS)), experts.grid_y)
    shape = Shape(grid, THREADS, shared_bytes(m.type_id, experts.n_pass, m.n_groups))
    lists = (experts.lists.experts, experts.lists.starts)
    arguments = (down.raw, shared_down.raw, *experts.sizes, np.int32(m.n_out), *lists, *_codes_for(m, hidden), out)
    return Launch(device, down_kernel(m.type_id, experts.n_pass, DOWN_TURNS, device.target), shape, arguments, programmatic)
