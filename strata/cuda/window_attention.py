"""Attention over one split of cells for windows of few rows: everything on its way before anything is computed.

The orders of host/attention.py, with the triples of attention.py, which merging.py merges.  A thread block has one row, one split
and a part of a K/V head's query heads, so that one row's splits fill a card.  Keys and values of the split come by asynchronous
copies into shared memory, the values while scores are made.  Two neighbouring threads make a cell's scores for a team's heads, each
with four lanes of every dot product; in value sums a thread has two dimensions of its team's heads.  One warp more sums the weights
meanwhile, a head a thread.  Does not know: which cells, the merge.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.addresses import copier, global_address, shared_address
from strata.cuda.attention_parts import SPLIT, ZERO, weigh_column
from strata.cuda.cells import INT8_GROUP
from strata.cuda.key_reads import cell_reader
from strata.cuda.seam import (
    Target, add, copies, exchange_float, fma, half, jit, kernel, launch_dependents, load_four_floats, load_two_floats, load_u16, mul,
    wait_for_dependency,
)
from strata.cuda.staged_reads import FORMATS, no_more, staged_reader

FEW_HEADS, MANY_HEADS = 6, 12
"""Query heads of a thread block, at most: fewer make more blocks, more share a split's keys and values."""
MANY_ROWS = 4
"""Windows of this many rows have blocks enough for MANY_HEADS."""
CELLS_AT_ONCE = 4
WARP = 32
MOST_THREADS = 1100
"""Threads of a multiprocessor that registers are left for: three blocks of FEW_HEADS or two of MANY_HEADS at the real geometry."""
TEAM = 2 * SPLIT
"""Threads of a team, which has a few heads of the block: two a cell, or one for every two dimensions."""


def heads_of(n_rows: int) -> int:
    """Return the most heads of a block for a number of rows."""
    return FEW_HEADS if n_rows < MANY_ROWS else MANY_HEADS


@dataclass(frozen=True, slots=True)
class StagedShape:
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
        return next(n for n in range(min(self.most_heads, of_key), 0, -1) if of_key % n == 0)

    @property
    def heads_per_thread(self) -> int:
        return next(n for n in (3, 2, 1) if self.group % n == 0)

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
    def row_floats(self) -> int:
        return 4 * cell_reader(self.kv, self.size).pieces

    @property
    def n_scales(self) -> int:
        """Scales of a vector."""
        return self.size // INT8_GROUP if self.kv == "int8" else 0

    @property
    def values_at(self) -> int:
        """Floats before the values: the keys."""
        return SPLIT * self.row_floats

    @property
    def scales_at(self) -> int:
        """Floats before the scales of keys, then of values."""
        return 2 * SPLIT * self.row_floats

    @property
    def queries_at(self) -> int:
        return self.scales_at + 2 * SPLIT * self.n_scales

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


def _fetch(shape: StagedShape, target: Target):
    """Build `ask(...)`: queries; `fetch(...)`: keys, then values of the split's n cells, each a group of copies."""
    reader, copy16, commit = cell_reader(shape.kv, shape.size), copier(16, 0, 0, target), copies(target, 0).commit
    pieces, turn, n_scales, n_threads, n_kv = reader.pieces, reader.turn, shape.n_scales, shape.n_threads, shape.n_kv
    row_bytes, values_byte, scales_at, ids_at = 16 * pieces, 4 * shape.values_at, shape.scales_at, shape.ids_at
    size, n_queries, queries_byte = shape.size, shape.group * shape.size // 4, 4 * shape.queries_at

    @jit
    def ask(at, queries, first_head, thread):
        to, source = at + queries_byte, global_address(queries) + 4 * first_head * size
        for i in range(thread, n_queries, n_threads):
            copy16(to + 16 * i, source + 16 * i)

    @jit
    def vector_at(ids, cell, piece):
        return np.int64(ids[ids_at + cell]) * (n_kv * row_bytes) + 16 * piece

    @jit
    def fetch(at, shared, ids, k_codes, k_scales, v_codes, v_scales, first_vector, n, thread):
        keys, values = global_address(k_codes) + first_vector * row_bytes, global_address(v_codes) + first_vector * row_bytes
        for i in range(thread, n * pieces, n_threads):
            cell, piece = i // pieces, i % pieces
            copy16(at + (cell * row_bytes + 16 * (piece ^ (cell & turn))), keys + vector_at(ids, cell, piece))
        commit()
        for i in range(thread, n * pieces, n_threads):
            copy16(at + values_byte + 16 * i, values + vector_at(ids, i // pieces, i % pieces))
        commit()
        for i in range(thread, n * n_scales, n_threads):
            cell, which = i // n_scales, i % n_scales
            vector = first_vector + np.int64(ids[ids_at + cell]) * n_kv
            source = 2 * (vector * n_scales + which)
            shared[scales_at + i] = half(load_u16(k_scales, source))
            shared[scales_at + SPLIT * n_scales + i] = half(load_u16(v_scales, source))

    return ask, fetch


def _steps(shape: StagedShape, read, eight: int):
    """Build `step(...)`: eights `eight` .. of a round, each written out so that offsets are constants."""
    if eight == read.per_round:
        return no_more
    size, heads, keys, following = shape.size, shape.heads_per_thread, read.keys, _steps(shape, read, eight + 1)

    @jit
    def step(shared, round_, cell, part, queries_byte, values, sums):
        keys(shared, round_, cell, eight, part, values, 0)
        for h in range(heads):
            q0, q1, q2, q3 = load_four_floats(shared, np.int64(queries_byte + 4 * h * size + 32 * eight))
            s = 4 * h
            sums[s] = fma(q0, values[0], sums[s])
            sums[s + 1] = fma(q1, values[1], sums[s + 1])
            sums[s + 2] = fma(q2, values[2], sums[s + 2])
            sums[s + 3] = fma(q3, values[3], sums[s + 3])
        following(shared, round_, cell, part, queries_byte, values, sums)

    return step


def _scores(shape: StagedShape, read):
    """Build `scores(...)`: a cell's scores for some heads, by two neighbouring threads."""
    size, heads, pitch, queries_at, weights_at = shape.size, shape.heads_per_thread, shape.pitch, shape.queries_at, shape.weights_at
    team_pitch = shape.team_pitch
    step, rounds, round_bytes = _steps(shape, read, 0), read.rounds, 32 * read.per_round

    @jit
    def scores(shared, n, scale, thread, values, sums):
        part, cell, team = thread & 1, (thread >> 1) & (SPLIT - 1), thread // TEAM
        for s in range(4 * heads):
            sums[s] = ZERO
        at = 4 * (queries_at + team * heads * size) + 16 * part
        for r in range(rounds):
            step(shared, r, cell, part, at + r * round_bytes, values, sums)
        for s in range(4 * heads):
            sums[s] = add(sums[s], exchange_float(sums[s], np.int32(1)))
        if part == 0 and cell < n:
            for h in range(heads):
                s = 4 * h
                dot = add(add(sums[s], sums[s + 2]), add(sums[s + 1], sums[s + 3]))
                shared[weights_at + cell * pitch + team * team_pitch + h] = mul(dot, scale)

    return scores


def _softmax(shape: StagedShape):
    """Build `weigh(shared, n, thread)`: a warp turns a head's scores into exp(score - maximum); `total_of(shared, n, head)`: their sum."""
    n_warps, group, heads, pitch, team_pitch = shape.n_threads // WARP, shape.group, shape.heads_per_thread, shape.pitch, shape.team_pitch
    weights_at, tops_at = shape.weights_at, shape.tops_at

    @jit
    def weigh(shared, n, thread):
        for h in range(thread // WARP, group, n_warps):
            top = weigh_column(shared, weights_at + h // heads * team_pitch + h % heads, pitch, n, thread & 31)
            if thread & 31 == 0:
                shared[tops_at + h] = top

    @jit
    def total_of(shared, n, head):
        at, total = weights_at + head // heads * team_pitch + head % heads, ZERO
        for cell in range(n):
            total = add(total, shared[at + cell * pitch])
        return total

    return weigh, total_of


def _value_sums(shape: StagedShape, pair):
    """Build `accumulate(shared, n, dim, team, sums)`: sums[2 h + d] of dimension dim + d and head h of the team."""
    heads, pitch, team_pitch, weights_at = shape.heads_per_thread, shape.pitch, shape.team_pitch, shape.weights_at

    @jit
    def weights_of(shared, at):
        if team_pitch == 4:
            e0, e1, e2, _ = load_four_floats(shared, np.int64(4 * at))
            return e0, e1, e2
        if team_pitch == 2:
            e0, e1 = load_two_floats(shared, np.int64(4 * at))
            return e0, e1, ZERO
        return shared[at], ZERO, ZERO

    @jit
    def add_cell(shared, cell, dim, team, sums):
        v0, v1 = pair(shared, cell, dim)
        e0, e1, e2 = weights_of(shared, weights_at + cell * pitch + team * team_pitch)
        sums[0], sums[1] = fma(e0, v0, sums[0]), fma(e0, v1, sums[1])
        if heads > 1:
            sums[2], sums[3] = fma(e1, v0, sums[2]), fma(e1, v1, sums[3])
        if heads > 2:
            sums[4], sums[5] = fma(e2, v0, sums[4]), fma(e2, v1, sums[5])

    @jit
    def accumulate(shared, n, dim, team, sums):
        for i in range(2 * heads):
            sums[i] = ZERO
        whole = n & ~(CELLS_AT_ONCE - 1)
        for begin in range(0, whole, CELLS_AT_ONCE):
            for c in range(CELLS_AT_ONCE):
                add_cell(shared, begin + c, dim, team, sums)
        for cell in range(whole, n):
            add_cell(shared, cell, dim, team, sums)

    return accumulate


@cache
def staged_kernel(shape: StagedShape, target: Target):
    """Return the kernel; grid (heads / group * splits, rows), shape.n_threads threads.

    kernel(queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_splits, tops,
    totals, triples): shapes as in attention.py.
    """
    n_q, n_kv, size, group, dense, n_threads = shape.n_q, shape.n_kv, shape.size, shape.group, shape.dense, shape.n_threads
    n_groups, per_key = n_q // group, n_q // group // n_kv
    read, n_teams, heads = staged_reader(shape), shape.n_teams, shape.heads_per_thread
    ask, fetch = _fetch(shape, target)
    scores, (weigh, total_of), accumulate = _scores(shape, read), _softmax(shape), _value_sums(shape, read.pair)
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
