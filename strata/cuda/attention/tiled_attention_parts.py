"""The pieces of tiled_attention.py: how queries, keys and values arrive, scores, softmax weights, value sums, merge, results.

A team of 64 threads has a few query heads of one row.  In scores a thread has four lanes of the dot products of its heads with two
cells, in value sums four dimensions of its heads.  `shape` is a TileShape.  Does not know: which rows, which splits.
"""

import numpy as np

from strata.cuda.attention.attention_parts import SPLIT, ZERO, column_sum, largest_of, output_gate
from strata.cuda.attention.key_reads import cell_reader, piece_place
from strata.cuda.attention.staged_reads import dot_steps
from strata.cuda.machine.on_cuda import exp
from strata.cuda.machine.seam import Target, add, copies, exchange_float, fma, half, jit, load_two_floats, load_u16, mul, sub

ROWS = 4
"""Rows of a block: four share most, two leave room for a second block, which computes while the first one waits."""
CELLS_AT_ONCE = 4


def query_arrival(shape, target: Target):
    """Build `ask(...)`: the rows' queries to shared memory, with the next group of copies, and their counts; returns the largest count."""
    n_q, group, n_threads, dense, counts_at = shape.n_q, shape.group, shape.n_threads, shape.dense, shape.counts_at
    size, per_row, queries_byte, copy16 = shape.size, shape.group * shape.size // 4, 4 * shape.queries_at, copies(target, 0).copy16

    @jit
    def ask(shared, row_counts, queries, positions, counts, first_row, n_rows, j, thread):
        most = np.int32(0)
        for r in range(ROWS):
            row = min(np.int32(first_row + r), np.int32(n_rows - 1))
            count = np.int32(positions[row] + 1) if dense else counts[row]
            most = max(most, count)
            if thread == r:
                row_counts[counts_at + r] = count
            source = 4 * (np.int64(row) * n_q + j * group) * size
            for i in range(thread, per_row, n_threads):
                copy16(shared, np.int64(queries_byte + 16 * (r * per_row + i)), queries, source + 16 * i)
        return most

    return ask


def arrival(shape, target: Target):
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


def tile_scores(shape, read):
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


def tile_softmax(shape):
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


def tile_values(shape, four_values):
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


def tile_merge(shape):
    """Build `merge(shared, s, first, n, fresh, merged)`: a team's value sums of split s join those before, where it has n cells."""
    heads, old_at, new_at = shape.heads, shape.tops_at + shape.n_queries, shape.tops_at + 2 * shape.n_queries
    n_sums = 4 * heads

    @jit
    def merge(shared, s, first, n, fresh, merged):
        if s == 0:
            for i in range(n_sums):
                merged[i] = fresh[i]
        elif n > 0:
            for h in range(heads):
                old, new = shared[old_at + first + h], shared[new_at + first + h]
                for d in range(4):
                    merged[4 * h + d] = fma(fresh[4 * h + d], new, mul(merged[4 * h + d], old))

    return merge


def tile_results(shape, target: Target):
    """Build `exchange(...)` and `store(...)`: results change places through the queries' memory; a warp then codes 32 neighbouring dimensions."""
    size, group, heads, n_threads, n_queries = shape.size, shape.group, shape.heads, shape.n_threads, shape.n_queries
    queries_at, totals_at, finish = shape.queries_at, shape.tops_at + n_queries, output_gate(shape, target)

    @jit
    def exchange(shared, first, dim, is_dim, merged):
        if is_dim:
            for h in range(heads):
                for d in range(4):
                    shared[queries_at + (first + h) * size + dim + d] = merged[4 * h + d]

    @jit
    def store(shared, first_row, n_rows, j, thread, projected, out, gated, codes, turned, scales, sums):
        for i in range(thread, n_queries * size, n_threads):
            query = np.int32(i // size)
            row = np.int32(first_row + query // group)
            if row < n_rows:
                head = j * group + query % group
                value, total = shared[queries_at + i], shared[totals_at + query]
                finish(value, total, row, head, i % size, projected, out, gated, codes, turned, scales, sums)

    return exchange, store
