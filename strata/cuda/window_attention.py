"""Attention over one split of cells for windows of few rows: everything on its way before anything is computed.

The orders of host/attention.py, with the triples of attention.py, which merging.py merges.  A thread block has one row, one split
and a part of a K/V head's query heads, so that one row's splits fill a card.  Keys and values of the split come by asynchronous
copies into shared memory, the values while scores are made.  Two neighbouring threads make a cell's scores for a few heads, each
with four lanes of every dot product; a thread makes a dimension of all heads' value sums; each warp sums one head's weights in the
same loop.  Does not know: which cells, the merge.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.attention_parts import SPLIT, ZERO, softmax
from strata.cuda.cells import INT8_GROUP
from strata.cuda.key_reads import cell_reader
from strata.cuda.seam import (
    Target, add, copies, exchange_float, fma, half, jit, kernel, launch_dependents, load_four_floats, load_u16, mul,
    wait_for_dependency,
)
from strata.cuda.staged_reads import FORMATS, no_more, staged_reader

MOST_HEADS = 6
"""Query heads of a thread block, at most: more would share a key, fewer make more blocks."""
CELLS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class StagedShape:
    """Geometry and variant of a split's kernel; `dense` attends to cells 0 .. position.  Shared memory in floats."""

    n_q: int
    n_kv: int
    size: int
    kv: str
    dense: bool

    @property
    def group(self) -> int:
        """Query heads of a thread block."""
        of_key = self.n_q // self.n_kv
        return next(n for n in range(min(MOST_HEADS, of_key), 0, -1) if of_key % n == 0)

    @property
    def heads_per_thread(self) -> int:
        return next(n for n in (3, 2, 1) if self.group % n == 0)

    @property
    def n_threads(self) -> int:
        """Two threads per cell and team of heads."""
        return 2 * SPLIT * (self.group // self.heads_per_thread)

    @property
    def padded_group(self) -> int:
        """Floats per cell of the softmax weights: whole vectors of four."""
        return (self.group + 3) // 4 * 4

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
        return self.weights_at + SPLIT * self.padded_group

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
    reader, move = cell_reader(shape.kv, shape.size), copies(target, 0)
    pieces, turn, n_scales, n_threads, n_kv = reader.pieces, reader.turn, shape.n_scales, shape.n_threads, shape.n_kv
    row_bytes, values_byte, scales_at, ids_at = 16 * pieces, 4 * shape.values_at, shape.scales_at, shape.ids_at
    size, n_queries, queries_byte = shape.size, shape.group * shape.size // 4, 4 * shape.queries_at
    copy16, commit = move.copy16, move.commit

    @jit
    def ask(shared, queries, first_head, thread):
        source = 4 * first_head * size
        for i in range(thread, n_queries, n_threads):
            copy16(shared, np.int64(queries_byte + 16 * i), queries, source + 16 * i)

    @jit
    def fetch(shared, ids, k_codes, k_scales, v_codes, v_scales, first_vector, n, thread):
        for i in range(thread, n * pieces, n_threads):
            cell, piece = i // pieces, i % pieces
            source = (first_vector + np.int64(ids[ids_at + cell]) * n_kv) * row_bytes + 16 * piece
            copy16(shared, np.int64(cell * row_bytes + 16 * (piece ^ (cell & turn))), k_codes, source)
        commit()
        for i in range(thread, n * pieces, n_threads):
            cell, piece = i // pieces, i % pieces
            source = (first_vector + np.int64(ids[ids_at + cell]) * n_kv) * row_bytes + 16 * piece
            copy16(shared, np.int64(values_byte + 16 * i), v_codes, source)
        commit()
        for i in range(thread, n * n_scales, n_threads):
            cell, which = i // n_scales, i % n_scales
            vector = first_vector + np.int64(ids[ids_at + cell]) * n_kv
            at = 2 * (vector * n_scales + which)
            shared[scales_at + i] = half(load_u16(k_scales, at))
            shared[scales_at + SPLIT * n_scales + i] = half(load_u16(v_scales, at))

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
    size, heads, pitch, queries_at, weights_at = shape.size, shape.heads_per_thread, shape.padded_group, shape.queries_at, shape.weights_at
    step, rounds, round_bytes = _steps(shape, read, 0), read.rounds, 32 * read.per_round

    @jit
    def scores(shared, n, scale, thread, values, sums):
        part, cell, first_head = thread & 1, (thread >> 1) & (SPLIT - 1), (thread >> 7) * heads
        for s in range(4 * heads):
            sums[s] = ZERO
        at = 4 * (queries_at + first_head * size) + 16 * part
        for r in range(rounds):
            step(shared, r, cell, part, at + r * round_bytes, values, sums)
        for s in range(4 * heads):
            sums[s] = add(sums[s], exchange_float(sums[s], np.int32(1)))
        if part == 0 and cell < n:
            for h in range(heads):
                s = 4 * h
                dot = add(add(sums[s], sums[s + 2]), add(sums[s + 1], sums[s + 3]))
                shared[weights_at + cell * pitch + first_head + h] = mul(dot, scale)

    return scores


def _value_sums(shape: StagedShape, value):
    """Build `accumulate(shared, n, dim, head, sums) -> total`: a dimension's value sums of all heads, and one head's weight sum."""
    group, pitch, weights_at = shape.group, shape.padded_group, shape.weights_at

    @jit
    def add_cell(shared, cell, dim, sums):
        v = value(shared, cell, dim)
        for quad in range(pitch // 4):
            e0, e1, e2, e3 = load_four_floats(shared, np.int64(4 * (weights_at + cell * pitch + 4 * quad)))
            h = 4 * quad
            sums[h] = fma(e0, v, sums[h])
            if 4 * quad + 1 < group:
                sums[h + 1] = fma(e1, v, sums[h + 1])
            if 4 * quad + 2 < group:
                sums[h + 2] = fma(e2, v, sums[h + 2])
            if 4 * quad + 3 < group:
                sums[h + 3] = fma(e3, v, sums[h + 3])

    @jit
    def accumulate(shared, n, dim, head, sums):
        total = ZERO
        for h in range(group):
            sums[h] = ZERO
        whole = n & ~(CELLS_AT_ONCE - 1)
        for begin in range(0, whole, CELLS_AT_ONCE):
            for c in range(CELLS_AT_ONCE):
                add_cell(shared, begin + c, dim, sums)
                total = add(total, shared[weights_at + (begin + c) * pitch + head])
        for cell in range(whole, n):
            add_cell(shared, cell, dim, sums)
            total = add(total, shared[weights_at + cell * pitch + head])
        return total

    return accumulate


@cache
def staged_kernel(shape: StagedShape, target: Target):
    """Return the kernel; grid (heads / group * splits, rows), shape.n_threads threads.

    kernel(queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_splits, tops,
    totals, triples): shapes as in attention.py.
    """
    n_q, n_kv, size, group, dense, n_threads = shape.n_q, shape.n_kv, shape.size, shape.group, shape.dense, shape.n_threads
    n_groups, per_key = n_q // group, n_q // group // n_kv
    read = staged_reader(shape)
    ask, fetch = _fetch(shape, target)
    scores, weigh, accumulate = _scores(shape, read), softmax(shape), _value_sums(shape, read.value)
    keys_here, all_here = copies(target, 1).wait, copies(target, 0).wait
    n_sums, dims, tops_at, ids_at, pitch = 4 * shape.heads_per_thread, -(-size // n_threads), shape.tops_at, shape.ids_at, shape.padded_group
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads, 2)
    def run(
        queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_splits, tops,
        totals, triples,
    ):
        shared = cuda.shared.array(0, types.float32)
        ids = cuda.shared.array(0, types.int32)
        values, dots = cuda.local.array(4, np.float32), cuda.local.array(n_sums, np.float32)
        sums = cuda.local.array(pitch, np.float32)
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
        ask(shared, queries, first_head, thread)
        n = min(np.int32(count - split * SPLIT), np.int32(SPLIT))
        if thread < n:
            ids[ids_at + thread] = own
        cuda.syncthreads()
        fetch(shared, ids, k_codes, k_scales, v_codes, v_scales, first_vector, n, thread)
        keys_here()
        cuda.syncthreads()
        scores(shared, n, scale, thread, values, dots)
        cuda.syncthreads()
        weigh(shared, n, thread)
        all_here()
        cuda.syncthreads()
        head = min(np.int32(thread >> 5), np.int32(group - 1))
        for d in range(dims):
            dim = min(np.int32(thread + d * n_threads), np.int32(size - 1))
            total = accumulate(shared, n, dim, head, sums)
            if thread + d * n_threads < size:
                for h in range(group):
                    triples[((first_head + h) * n_splits + split) * size + dim] = sums[h]
            if d == 0 and thread & 31 == 0 and thread >> 5 < group:
                at = (first_head + head) * n_splits + split
                tops[at], totals[at] = shared[tops_at + head], total

    return run
