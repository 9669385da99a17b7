"""The experts of a window of few rows in two launches: gate, up, silu(gate) * up and its codes; then down.

A block has 32 output rows of gate and the same 32 of up (two weight rows a thread, pairs.py), so that it owns a whole group of
the hidden row and codes it on the spot; for down it has DOWN_TURNS times 64 output rows
(SHORT_TURNS times where several rows take short weight rows whole, short_downs.py).  blockIdx.y counts the shared expert's
passes first, where it is in the launch, then the listed experts' passes: an expert's weights are read once for up to PASS_ROWS of its
entries, and a surplus block finds none.  A window of one row (n_pass = 1) has one entry an expert, the i-th of the
i-th: its kernel reads the experts' numbers alone, and a surplus block finds a negative one (dispatching.py).  The shared expert may have
another format than the listed ones: a block then takes one of two codes (expert_parts.py).

The entries of the listed experts are laid out as `products.Lists` says; entry first_shared + r is the shared expert's of row r.
Flat shapes: hidden codes [entries, F]; out float32 [entries, H].
Does not know: routers, the combination.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.experts import expert_parts, short_downs
from strata.cuda.experts.listed_passes import MOST_PASSES
from strata.cuda.experts.pairs import PASS_ROWS, SIDE_ROWS, THREADS, shared_bytes
from strata.cuda.machine.addresses import global_address, shared_address
from strata.cuda.machine.seam import Target, kernel
from strata.cuda.machine.shapes import require
from strata.cuda.packed.group_codes import arrays_of
from strata.cuda.packed.products import Coded, Lists, Packed
from strata.cuda.packed.readers import reader_of
from strata.cuda.packed.rows import known_of
from strata.formats.table import FORMATS

MIN_BLOCKS = 3
"""Blocks that a multiprocessor should hold: bounds the registers."""
ONE_ROW_BLOCKS = 2
"""The same in windows of one row, and the most that one then holds: 220 blocks lie more evenly on 132 multiprocessors by two than by three, which took
twelve layers from 945 to 972 us."""
DOWN_TURNS = 2
"""Turns of a block of down: with 2, the 11 experts of one row of width 2560 are 220 blocks."""
SHORT_DOWNS, SHORT_TURNS, FEW_ENTRIES = True, 4, 48
"""Whether down of several rows takes short rows whole (short_downs.py); its turns, and entries up to which it has DOWN_TURNS as well."""
DOWN_AHEAD = True
"""Whether down fetches listed weights before gate_up has ended, where it may."""
MOST_SHARED_BYTES = {(7, 5): 64 << 10, (8, 0): 163 << 10, (8, 7): 163 << 10, (9, 0): 227 << 10, (10, 0): 227 << 10}
OTHER_SHARED_BYTES, RESERVED = 99 << 10, 1 << 10
"""Shared memory that a block may ask for, by compute capability, and where it is not listed; what each takes beside it."""


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """What a launch computes: listed experts, the shared expert's rows, or both.

    `listed` are banks of experts' matrices and `shared` single ones of the same shape; either may be None.  The matrices of one
    side have one format.  The shared expert's rows are entries first_shared, first_shared + 1 ... of hidden rows and outputs.
    """

    n_rows: int
    lists: Lists
    listed: tuple[Packed, ...] | None
    shared: tuple[Packed, ...] | None
    first_shared: int = 0

    @property
    def sides(self) -> tuple[tuple[Packed, ...], tuple[Packed, ...]]:
        """The matrices of listed experts and of the shared one; where one is missing, the other's stand in."""
        return self.listed or self.shared, self.shared or self.listed

    @property
    def type_ids(self) -> tuple[int, int]:
        """The formats of both sides."""
        return tuple(side[0].type_id for side in self.sides)

    @property
    def n_pass(self) -> int:
        """Activation rows of a pass: windows of one row take a kernel that knows no others."""
        return 1 if self.n_rows == 1 else PASS_ROWS

    @property
    def n_shared(self) -> int:
        """Passes of the shared expert."""
        return -(-self.n_rows // self.n_pass) if self.shared else 0

    @property
    def grid_y(self) -> int:
        """Passes, at most: an entry belongs to one, and an expert has few."""
        n_most = (1 if self.n_pass == 1 else MOST_PASSES) * self.lists.most_experts
        return self.n_shared + (min(n_most, self.lists.most_entries) if self.listed else 0)

    @property
    def sizes(self) -> tuple:
        """expert_bytes, row_bytes, shared_row_bytes, n_groups, first_shared, n_rows, n_shared."""
        (own, *_), (common, *_) = self.sides
        words = (own.row_bytes, common.row_bytes, own.n_groups, self.first_shared, self.n_rows, self.n_shared)
        return np.int64(own.expert_bytes), *(np.int32(word) for word in words)

    def shared_bytes(self, cut_for, room: int) -> int:
        """Return the dynamic shared memory of a block, with `cut_for(form, n_pass)` either launch's cut; `room`: what a block may ask for.

        A block of one row takes so much that a multiprocessor holds ONE_ROW_BLOCKS, on cards where one block may have nearly all of its memory.
        """
        forms = ((FORMATS[m.type_id], m.n_groups) for (m, *_) in self.sides)
        needed = max(shared_bytes(form, cut_for(form, self.n_pass), self.n_pass, n_groups) for form, n_groups in forms)
        return max(needed, (room // (ONE_ROW_BLOCKS + 1) + RESERVED) & -16) if self.n_pass == 1 else needed


def most_shared_bytes(device: CudaDevice) -> int:
    """Return the shared memory that a block may ask for on a card."""
    return MOST_SHARED_BYTES.get(device.card.capability, OTHER_SHARED_BYTES)


def fits(device: CudaDevice, matrix: Packed, n_rows: int) -> bool:
    """Whether a block's stages and activation rows go into a card's shared memory; `products.listed` takes any."""
    n_pass, form = 1 if n_rows == 1 else PASS_ROWS, FORMATS[matrix.type_id]
    cuts = expert_parts.gate_up_cut(form, n_pass), expert_parts.down_cut(form, n_pass)
    wanted = max(shared_bytes(form, cut, n_pass, matrix.n_groups) for cut in cuts)
    return wanted + 4 * n_pass * SIDE_ROWS <= most_shared_bytes(device)


@cache
def gate_up_kernel(type_id: int, shared_type_id: int, n_pass: int, known_groups: int, target: Target):
    """Return the kernel of gate, up, activation and codes; grid (F / 32, passes of the shared expert + listed experts), THREADS threads.

    `known_groups`: as `rows.known_of` gives them.

    kernel(gate, up, shared_gate, shared_up, expert_bytes, row_bytes, shared_row_bytes, n_groups, first_shared, n_rows, n_shared,
    experts, starts, n_listed, entry_rows, codes, shared_codes, scales, sums, hidden_codes, hidden_turned, hidden_scales, hidden_sums).
    """
    is_mixed, n_hidden = type_id != shared_type_id, n_pass * SIDE_ROWS
    part, shared_part = (expert_parts.gate_up_part(which, n_pass, known_groups, target) for which in (type_id, shared_type_id))

    @kernel(THREADS, ONE_ROW_BLOCKS if n_pass == 1 else MIN_BLOCKS)
    def run(
        gate, up, shared_gate, shared_up, expert_bytes, row_bytes, shared_row_bytes, n_groups, first_shared, n_rows, n_shared, experts, starts,
        n_listed, entry_rows, codes, shared_codes, scales, sums, hidden_codes, hidden_turned, hidden_scales, hidden_sums,
    ):
        shared, hidden = shared_address(cuda.shared.array(0, types.uint8)), cuda.shared.array(n_hidden, np.float32)
        left, right = cuda.local.array(n_pass, np.float32), cuda.local.array(n_pass, np.float32)
        y = np.int32(cuda.blockIdx.y)
        is_shared = y < n_shared
        number = y if is_shared else np.int32(y - n_shared)
        left_from = global_address(shared_gate) if is_shared else global_address(gate)
        right_from = global_address(shared_up) if is_shared else global_address(up)
        if is_mixed and is_shared:
            shared_part(
                shared, hidden, left, right, left_from, right_from, expert_bytes, shared_row_bytes, n_groups, True, number, first_shared, n_rows,
                experts, starts, n_listed, entry_rows, shared_codes, scales, sums, hidden_codes, hidden_turned, hidden_scales, hidden_sums,
            )
        else:
            part(
                shared, hidden, left, right, left_from, right_from, expert_bytes, row_bytes, n_groups, not is_mixed and is_shared, number,
                first_shared, n_rows, experts, starts, n_listed, entry_rows, codes, scales, sums, hidden_codes, hidden_turned, hidden_scales,
                hidden_sums,
            )

    return run


def _down_part(type_id: int, n_pass: int, n_turns: int, ahead: bool, known_groups: int, target: Target):
    """Build what a block of down does."""
    if n_pass > 1 and known_groups:
        return short_downs.short_down_part(type_id, n_pass, n_turns, ahead, known_groups, target)
    return expert_parts.down_part(type_id, n_pass, n_turns, ahead, known_groups, target)


def _short_groups(device: CudaDevice, experts: Experts, down: Packed) -> int:
    """Return the groups of a row where down takes rows whole, else 0."""
    forms = [FORMATS[type_id] for type_id in experts.type_ids]
    takes = SHORT_DOWNS and experts.n_pass > 1 and all(short_downs.takes(form, down.n_groups, down.n_out) for form in forms)
    fit = takes and max(short_downs.shared_bytes(form, experts.n_pass, down.n_groups) for form in forms) <= most_shared_bytes(device)
    return down.n_groups if fit else 0


def _down_turns(experts: Experts, short_groups: int) -> int:
    """Return the turns of a block of down."""
    return SHORT_TURNS if short_groups and experts.lists.most_entries > FEW_ENTRIES else DOWN_TURNS


@cache
def down_kernel(type_id: int, shared_type_id: int, n_pass: int, n_turns: int, ahead: bool, known_groups: int, target: Target):
    """Return the kernel of down; grid (H / (64 n_turns), rounded up; passes of the shared expert + listed experts), THREADS threads.

    `known_groups`: of several activation rows, the groups of a weight row that is taken whole (short_downs.py), else 0; of one, as `rows.known_of`
    gives them.

    kernel(down, shared_down, expert_bytes, row_bytes, shared_row_bytes, n_groups, first_shared, n_rows, n_shared, n_out, experts,
    starts, n_listed, codes, shared_codes, scales, sums, out): an entry's activation row is the entry's own.
    """
    is_mixed = type_id != shared_type_id
    part, shared_part = (_down_part(which, n_pass, n_turns, ahead, known_groups, target) for which in (type_id, shared_type_id))

    @kernel(THREADS, ONE_ROW_BLOCKS if n_pass == 1 else MIN_BLOCKS)
    def run(
        down, shared_down, expert_bytes, row_bytes, shared_row_bytes, n_groups, first_shared, n_rows, n_shared, n_out, experts, starts,
        n_listed, codes, shared_codes, scales, sums, out,
    ):
        shared = shared_address(cuda.shared.array(0, types.uint8))
        left, right = cuda.local.array(n_pass, np.float32), cuda.local.array(n_pass, np.float32)
        y = np.int32(cuda.blockIdx.y)
        is_shared = y < n_shared
        number = y if is_shared else np.int32(y - n_shared)
        weights = global_address(shared_down) if is_shared else global_address(down)
        if is_mixed and is_shared:
            shared_part(
                shared, left, right, weights, expert_bytes, shared_row_bytes, n_groups, n_out, True, number, first_shared, n_rows, experts, starts,
                n_listed, shared_codes, scales, sums, out,
            )
        else:
            part(
                shared, left, right, weights, expert_bytes, row_bytes, n_groups, n_out, not is_mixed and is_shared, number, first_shared, n_rows,
                experts, starts, n_listed, codes, scales, sums, out,
            )

    return run


def _require_passes(experts: Experts) -> None:
    require(experts.n_rows <= MOST_PASSES * experts.n_pass, f"{experts.n_rows} rows", f"an expert has {MOST_PASSES} passes at most", "use products.listed")


def _activations(experts: Experts, x: Coded) -> tuple:
    """Return codes in the order of both sides' words, scales and sums."""
    for m, *_ in experts.sides:
        require(m.n_in == x.n, f"experts of {m.n_in} columns", f"the activations have {x.n}", "give rows of that width")
    return *(x.turned if reader_of(FORMATS[type_id]).turned else x.codes for type_id in experts.type_ids), x.scales, x.sums


def launch_gate_up(device: CudaDevice, experts: Experts, x: Coded, hidden: Coded, programmatic: bool = False) -> Launch:
    """hidden [entries, F] = codes of silu(gate . x) * (up . x); the matrices are (gate, up)."""
    (gate, up), (shared_gate, shared_up) = experts.sides
    _require_passes(experts)
    require(gate.n_out % SIDE_ROWS == 0, f"expert width {gate.n_out}", "codes come in groups of 32")
    shape = Shape((gate.n_out // SIDE_ROWS, experts.grid_y), THREADS, experts.shared_bytes(expert_parts.gate_up_cut, most_shared_bytes(device)))
    lists = (experts.lists.experts, experts.lists.starts, experts.lists.n_listed, experts.lists.entry_rows)
    matrices = (gate.raw, up.raw, shared_gate.raw, shared_up.raw)
    run = gate_up_kernel(*experts.type_ids, experts.n_pass, known_of(experts.n_pass, gate.n_groups), device.target)
    return Launch(device, run, shape, (*matrices, *experts.sizes, *lists, *_activations(experts, x), *arrays_of(hidden)), programmatic)


def launch_down(device: CudaDevice, experts: Experts, hidden: Coded, out, programmatic: bool = False, ahead: bool = False) -> Launch:
    """out float32 [entries, H] = down . hidden; the matrices are (down,).

    `ahead`: the launch directly before is gate_up's, so that the lists may be read, and listed weights fetched, before it has ended.
    """
    (down,), (shared_down,) = experts.sides
    _require_passes(experts)
    short_groups = _short_groups(device, experts, down)
    turns, n_shared = _down_turns(experts, short_groups), experts.shared_bytes(expert_parts.down_cut, most_shared_bytes(device))
    if short_groups:
        n_shared = max(short_downs.shared_bytes(FORMATS[type_id], experts.n_pass, short_groups) for type_id in experts.type_ids)
    shape = Shape((-(-down.n_out // (2 * SIDE_ROWS * turns)), experts.grid_y), THREADS, n_shared)
    lists = (experts.lists.experts, experts.lists.starts, experts.lists.n_listed)
    known_groups = short_groups or known_of(experts.n_pass, down.n_groups)
    run = down_kernel(*experts.type_ids, experts.n_pass, turns, ahead and DOWN_AHEAD, known_groups, device.target)
    arguments = (down.raw, shared_down.raw, *experts.sizes, np.int32(down.n_out), *lists, *_activations(experts, hidden), out)
    return Launch(device, run, shape, arguments, programmatic)
