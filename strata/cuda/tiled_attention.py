"""Attention of prompt rows that take all their cells: neighbouring rows share keys and values.

The orders of host/attention.py.  A thread block has ROWS rows of one slot and one K/V head with its group of query heads, and goes
through splits of 64 cells, merging on the way; the next keys are fetched while values are summed and the other way round.  Rows
differ in where their cells end: a team of 64 threads has a few query heads of one row, so each goes as far as its row.  In scores a
thread has four lanes of the dot products of its heads with two cells, in value sums four dimensions of its heads.

A tile is taken where all its rows have one slot and cells 0 .. count - 1 (`tile_check`); attention.py does the other rows.
Flat shapes as in attention.py.  Does not know: selection.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.attention_parts import SPLIT, ZERO, column_sum, largest_of, merge_factors, output_gate
from strata.cuda.float_tiles import fits as large_blocks_fit
from strata.cuda.key_reads import cell_reader, piece_place
from strata.cuda.on_cuda import exp
from strata.cuda.seam import (
    Target, add, copies, exchange_float, fma, half, jit, kernel, launch_dependents, load_two_floats, load_u16, mul, sub,
    wait_for_dependency,
)
from strata.cuda.staged_reads import FORMATS, StagedLayout, dot_steps, staged_reader

ROWS = 4
"""Rows of a block: four share most, two leave room for a second block, which computes while the first one waits."""
MOST_THREADS = 512
"""Threads of a multiprocessor that registers are left for."""
TEAM = 64
CELLS_AT_ONCE = 4
LARGEST_HEAD = 256
SHARED_BYTES = 200 * 1024
"""What cards with 227 KB a multiprocessor give a block, less some."""


@dataclass(frozen=True, slots=True)
class TileShape(StagedLayout):
    """Geometry and variant; `dense` attends to cells 0 .. position.  Places in shared memory count floats."""

    n_q: int
    n_kv: int
    size: int
    kv: str
    dense: bool

    @property
    def group(self) -> int:
        """Query heads of a K/V head."""
        return self.n_q // self.n_kv

    @property
    def heads(self) -> int:
        """Query heads of a team."""
        return next(n for n in (6, 5, 4, 3, 2, 1) if self.group % n == 0)

    @property
    def n_queries(self) -> int:
        return ROWS * self.group

    @property
    def n_threads(self) -> int:
        return TEAM * (self.n_queries // self.heads)

    @property
    def pitch(self) -> int:
        """Floats per cell of the softmax weights: even, and two threads a bank at most."""
        return self.n_queries // 2 * 2 + 2

    @property
    def weights_at(self) -> int:
        return self.queries_at + self.n_queries * self.size

    @property
    def tops_at(self) -> int:
        """Floats before maxima, old and new factors of all queries; the rows' counts follow."""
        return self.weights_at + SPLIT * self.pitch

    @property
    def counts_at(self) -> int:
        return self.tops_at + 3 * self.n_queries

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.counts_at + ROWS)


def takes(shape: TileShape, capability: tuple[int, int]) -> bool:
    """Whether tiles are made for a geometry and a card of a compute capability."""
    fits = shape.size % 32 == 0 and shape.size <= LARGEST_HEAD and shape.n_threads <= 1024 and shape.shared_bytes <= SHARED_BYTES
    return shape.kv in FORMATS and fits and large_blocks_fit(capability)


def tile_check(dense: bool):
    """Build `is_tile(slots, cells, counts, width, row, n_rows)`: whether the ROWS rows around `row` make a tile."""

    @jit
    def is_tile(slots, cells, counts, width, row, n_rows):
        first = np.int32(row // ROWS * ROWS)
        slot, good = slots[first], True
        for r in range(ROWS):
            own = min(np.int32(first + r), np.int32(n_rows - 1))
            good = good and slots[own] == slot
            if not dense:
                # Ascending cells of which the last is count - 1 are all cells before it.
                last = np.int32(counts[own] - 1)
                good = good and last >= 0 and cells[np.int64(own) * width + max(last, np.int32(0))] == last
        return good

    return is_tile


def _fetch(shape: TileShape, target: Target):
    """Build `keys(...)` and `values(...)`: a split's n cells to shared memory, each a group of copies."""
    reader, move = cell_reader(shape.kv, shape.size), copies(target, 0)
    pieces, n_scales, n_threads, n_kv = reader.pieces, shape.n_scales, shape.n_threads, shape.n_kv
    row_bytes, values_byte, scales_at = 16 * pieces, 4 * shape.values_at, shape.scales_at
    copy16, commit = move.copy16, move.commit

    def part(begin, turn, scales_at):
        place_of = piece_place(begin, row_bytes, turn)

        @jit
        def fetch(shared, codes, scales, first_vector, n, thread):
            for i in range(thread, n * pieces, n_threads):
                cell, piece = i // pieces, i % pieces
                source = (first_vector + np.int64(cell) * n_kv) * row_bytes + 16 * piece
                copy16(shared, np.int64(place_of(cell, piece)), codes, source)
            commit()
            for i in range(thread, n * n_scales, n_threads):
                cell, which = i // n_scales, i % n_scales
                vector = first_vector + np.int64(cell) * n_kv
                shared[scales_at + i] = half(load_u16(scales, 2 * (vector * n_scales + which)))

        return fetch

    return part(0, reader.turn, scales_at), part(values_byte, 0, scales_at + SPLIT * n_scales)


def _scores(shape: TileShape, read):
    """Build `scores(...)`: a team's scores of a split's cells."""
    size, heads, pitch, queries_at, weights_at = shape.size, shape.heads, shape.pitch, shape.queries_at, shape.weights_at
    n_half, step, rounds, round_bytes = 4 * heads, dot_steps(shape.size, heads, read, 2), read.rounds, 32 * read.per_round

    @jit
    def scores(shared, scale, thread, values, sums):
        part, cell, first = thread & 1, (thread >> 1) & 31, (thread >> 6) * heads
        for s in range(2 * n_half):
            sums[s] = ZERO
        at = 4 * (queries_at + first * size) + 16 * part
        for r in range(rounds):
            step(shared, r, cell, part, at + r * round_bytes, values, sums)
        # A thread finishes one of its two cells and hands its lanes of the other to its neighbour.
        for s in range(n_half):
            mine, theirs = (sums[n_half + s], sums[s]) if part == 1 else (sums[s], sums[n_half + s])
            sums[s] = add(mine, exchange_float(theirs, np.int32(1)))
        out = weights_at + (cell + 32 * part) * pitch + first
        for h in range(heads):
            s = 4 * h
            shared[out + h] = mul(add(add(sums[s], sums[s + 2]), add(sums[s + 1], sums[s + 3])), scale)

    return scores


def _softmax(shape: TileShape):
    """Build `weigh(shared, counts, s, thread)` and `total_of(shared, query, n)` as in attention_parts.py, each row by its own count."""
    group, n_queries, n_warps, pitch = shape.group, shape.n_queries, shape.n_threads // 32, shape.pitch
    weights_at, tops_at, counts_at = shape.weights_at, shape.tops_at, shape.counts_at

    @jit
    def weigh(shared, counts, s, thread):
        lane = thread & 31
        for query in range(thread >> 5, n_queries, n_warps):
            n = np.int32(counts[counts_at + query // group] - s * SPLIT)
            if n > 0:
                own = weights_at + query
                first, second = own + lane * pitch, own + (lane + 32) * pitch
                a = shared[first if lane < n else own]
                b = shared[second if lane + 32 < n else own]
                top = largest_of(a, b)
                shared[first], shared[second] = exp(sub(a, top)), exp(sub(b, top))
                if lane == 0:
                    shared[tops_at + query] = top

    @jit
    def total_of(shared, query, n):
        return column_sum(shared, weights_at + query, pitch, n)

    return weigh, total_of


def _value_sums(shape: TileShape, four_values):
    """Build `accumulate(shared, n, first, dim, values, weights, sums)`: four dimensions' value sums of a team's heads."""
    heads, pitch, weights_at = shape.heads, shape.pitch, shape.weights_at
    paired = heads // 2 * 2 if heads % 2 == 0 else 0

    @jit
    def add_cell(shared, cell, first, dim, values, weights, sums):
        four_values(shared, cell, dim, values)
        at = weights_at + cell * pitch + first
        for pair in range(paired // 2):
            weights[2 * pair], weights[2 * pair + 1] = load_two_floats(shared, np.int64(4 * (at + 2 * pair)))
        for h in range(paired, heads):
            weights[h] = shared[at + h]
        for h in range(heads):
            for d in range(4):
                sums[4 * h + d] = fma(weights[h], values[d], sums[4 * h + d])

    @jit
    def accumulate(shared, n, first, dim, values, weights, sums):
        for i in range(4 * heads):
            sums[i] = ZERO
        whole = n & ~(CELLS_AT_ONCE - 1)
        for begin in range(0, whole, CELLS_AT_ONCE):
            for c in range(CELLS_AT_ONCE):
                add_cell(shared, begin + c, first, dim, values, weights, sums)
        for cell in range(whole, n):
            add_cell(shared, cell, first, dim, values, weights, sums)

    return accumulate


@cache
def tile_kernel(shape: TileShape, target: Target):
    """Return the kernel; grid (kv_heads, rows / ROWS), shape.n_threads threads; the rows' tiles come last first, as these are longest.

    kernel(queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_rows, projected,
    out, gated, codes, turned, scales, sums).
    """
    n_q, n_kv, size, group, heads, dense, n_threads = shape.n_q, shape.n_kv, shape.size, shape.group, shape.heads, shape.dense, shape.n_threads
    read, n_queries, n_warps = staged_reader(shape), shape.n_queries, shape.n_threads // 32
    fetch_keys, fetch_values = _fetch(shape, target)
    scores, (weigh, total_of), accumulate = _scores(shape, read), _softmax(shape), _value_sums(shape, read.values)
    is_tile, finish, one_pending, copy16 = tile_check(dense), output_gate(shape, target), copies(target, 1).wait, copies(target, 0).copy16
    queries_at, tops_at, counts_at = shape.queries_at, shape.tops_at, shape.counts_at
    old_at, new_at, n_dots, n_sums, per_row = tops_at + n_queries, tops_at + 2 * n_queries, 8 * heads, 4 * heads, group * size // 4
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads, max(1, MOST_THREADS // n_threads))
    def run(
        queries, k_codes, k_scales, v_codes, v_scales, slots, positions, cells, counts, width, n_cells, scale, n_rows, projected, out,
        gated, codes, turned, scales, sums,
    ):
        shared = cuda.shared.array(0, types.float32)
        row_counts = cuda.shared.array(0, types.int32)
        eight, weights = cuda.local.array(8, np.float32), cuda.local.array(heads, np.float32)
        dots = cuda.local.array(n_dots, np.float32)
        fresh, merged = cuda.local.array(n_sums, np.float32), cuda.local.array(n_sums, np.float32)
        go_on()
        wait_before()
        j, thread = np.int32(cuda.blockIdx.x), np.int32(cuda.threadIdx.x)
        first_row = np.int32((np.int32(cuda.gridDim.y) - 1 - np.int32(cuda.blockIdx.y)) * ROWS)
        if not is_tile(slots, cells, counts, width, first_row, n_rows):
            return
        most = np.int32(0)
        for r in range(ROWS):
            row = min(np.int32(first_row + r), np.int32(n_rows - 1))
            count = np.int32(positions[row] + 1) if dense else counts[row]
            most = max(most, count)
            if thread == r:
                row_counts[counts_at + r] = count
            source = 4 * (np.int64(row) * n_q + j * group) * size
            for i in range(thread, per_row, n_threads):
                copy16(shared, np.int64(4 * queries_at + 16 * (r * per_row + i)), queries, source + 16 * i)
        first_vector = np.int64(slots[first_row]) * n_cells * n_kv + j
        n_splits, n = np.int32((most + SPLIT - 1) // SPLIT), min(most, np.int32(SPLIT))
        fetch_keys(shared, k_codes, k_scales, first_vector, n, thread)
        fetch_values(shared, v_codes, v_scales, first_vector, n, thread)
        query, first = (thread >> 5) + n_warps * (thread & 31), (thread >> 6) * heads
        dim = 4 * (thread & (TEAM - 1))
        is_dim = dim < size
        dim = dim if is_dim else np.int32(0)
        running_top = running_total = ZERO
        for s in range(n_splits):
            following = first_vector + np.int64((s + 1) * SPLIT) * n_kv
            n_following = max(np.int32(0), min(np.int32(most - (s + 1) * SPLIT), np.int32(SPLIT)))
            one_pending()
            cuda.syncthreads()
            scores(shared, scale, thread, eight, dots)
            cuda.syncthreads()
            fetch_keys(shared, k_codes, k_scales, following, n_following, thread)
            weigh(shared, row_counts, s, thread)
            one_pending()
            cuda.syncthreads()
            if query < n_queries:
                n = min(np.int32(row_counts[counts_at + query // group] - s * SPLIT), np.int32(SPLIT))
                if n > 0:
                    top, total = shared[tops_at + query], total_of(shared, query, n)
                    if s == 0:
                        running_top, running_total = top, total
                    else:
                        running_top, running_total, old, new = merge_factors(top, total, running_top, running_total)
                        shared[old_at + query], shared[new_at + query] = old, new
            n = min(np.int32(row_counts[counts_at + first // group] - s * SPLIT), np.int32(SPLIT))
            if n > 0:
                accumulate(shared, n, first, dim, eight, weights, fresh)
            cuda.syncthreads()
            fetch_values(shared, v_codes, v_scales, following, n_following, thread)
            if s == 0:
                for i in range(n_sums):
                    merged[i] = fresh[i]
            elif n > 0:
                for h in range(heads):
                    old, new = shared[old_at + first + h], shared[new_at + first + h]
                    for d in range(4):
                        merged[4 * h + d] = fma(fresh[4 * h + d], new, mul(merged[4 * h + d], old))
        cuda.syncthreads()
        # The results change places through the queries' memory: a warp then codes 32 neighbouring dimensions.
        if query < n_queries:
            shared[old_at + query] = running_total
        if is_dim:
            for h in range(heads):
                for d in range(4):
                    shared[queries_at + (first + h) * size + dim + d] = merged[4 * h + d]
        cuda.syncthreads()
        for i in range(thread, n_queries * size, n_threads):
            query = np.int32(i // size)
            row = np.int32(first_row + query // group)
            if row < n_rows:
                head = j * group + query % group
                value, total = shared[queries_at + i], shared[old_at + query]
                finish(value, total, row, head, i % size, projected, out, gated, codes, turned, scales, sums)

    return run
