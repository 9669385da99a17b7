"""The pieces of tiled_attention.py: how queries, keys and values arrive, scores, softmax weights, value sums, merge, results.

A team of 64 threads has a few query heads of one row.  In scores a thread has two of the eight lanes of the dot products of its heads with
four cells, of which it finishes one; in value sums it has four dimensions of its heads.  `shape` is a TileShape, addresses are those of
shared memory.  Does not know: which rows, which splits.
"""

import numpy as np

from strata.cuda.attention.attention_parts import SPLIT, ZERO
from strata.cuda.attention.tile_reads import CELLS, TileReader, dot_round, query_place
from strata.cuda.machine.addresses import (
    copier, copy_series, global_address, shared_float, shared_four_floats, store_shared_float, store_shared_four_floats,
)
from strata.cuda.machine.on_cuda import exp_below, sigmoid
from strata.cuda.machine.seam import (
    Target, add, bits, copies, div, exchange_float, fma, from_bits, half, jit, load_four_floats, load_u16, mul, sub,
)
from strata.cuda.machine.stores import store_four_floats
from strata.cuda.machine.warps import integers
from strata.cuda.packed.group_codes import code_fours

ROWS = 4
"""Rows of a block: four share most, two leave room for a second block, which computes while the first one waits."""
CELLS_AT_ONCE, SUMMED_AT_ONCE = 8, 32
LOWEST = np.int32(-0x80000000)
SIGN_MASK = np.int32(0x7FFFFFFF)


def query_arrival(shape, target: Target):
    """Build `ask(...)`: the rows' queries to shared memory, with the next group of copies, and their counts; returns the largest count."""
    n_q, group, n_threads, dense, counts_at = shape.n_q, shape.group, shape.n_threads, shape.dense, shape.counts_at
    size, per_row, queries_byte, copy4 = shape.size, shape.group * shape.size, 4 * shape.queries_at, copier(4, 0, 0, target)

    @jit
    def ask(start, row_counts, queries, positions, counts, first_row, n_rows, j, thread):
        most = np.int32(0)
        for r in range(ROWS):
            row = min(np.int32(first_row + r), np.int32(n_rows - 1))
            count = np.int32(positions[row] + 1) if dense else counts[row]
            most = max(most, count)
            if thread == r:
                row_counts[counts_at + r] = count
            source, to = global_address(queries) + 4 * (np.int64(row) * n_q + j * group) * size, start + queries_byte + 4 * r * per_row
            for i in range(thread, per_row, n_threads):
                copy4(to + 4 * query_place(i), source + 4 * i)
        return most

    return ask


def arrival(shape, target: Target):
    """Build `keys(...)` and `values(...)`: a split's n cells to shared memory, each a group of copies."""
    pieces, n_scales, n_threads, n_kv = shape.pieces, shape.n_scales, shape.n_threads, shape.n_kv
    row_bytes, n_cells, commit = 16 * shape.pieces, shape.n_threads // shape.pieces, copies(target, 0).commit

    def part(begin, pitch, scales_at):
        copy = copy_series(16, -(-SPLIT // n_cells), n_cells * pitch, n_cells * n_kv * row_bytes, n_cells, target, once=True)

        @jit
        def fetch(start, shared, codes, scales, first_vector, n, thread):
            cell, piece = thread // pieces, thread % pieces
            if cell < n_cells:
                source = global_address(codes) + (first_vector + np.int64(cell) * n_kv) * row_bytes + 16 * piece
                copy(start + begin + cell * pitch + 16 * piece, source, np.int32(n - cell))
            commit()

        @jit
        def fetch_both(start, shared, codes, scales, first_vector, n, thread):
            fetch(start, shared, codes, scales, first_vector, n, thread)
            for i in range(thread, n * n_scales, n_threads):
                vector = first_vector + np.int64(i // n_scales) * n_kv
                shared[scales_at + i] = half(load_u16(scales, 2 * (vector * n_scales + i % n_scales)))

        return fetch_both if n_scales else fetch

    return part(0, shape.key_bytes, shape.scales_at), part(4 * shape.values_at, row_bytes, shape.scales_at + SPLIT * n_scales)


def tile_scores(shape, read: TileReader):
    """Build `scores(start, scale, thread, values, sums)`: sums[h] = the score of head h of the team with the thread's cell; `cell_of(thread)`."""
    size, heads, key_bytes, n_scales, scales_at = shape.size, shape.heads, shape.key_bytes, shape.n_scales, shape.scales_at
    n_pairs = 4 if size % 64 == 0 else 2
    n_rounds, eight_bytes, factor, n_quarter = size // (16 * n_pairs), read.eight_bytes, read.factor, 2 * heads
    go_on, step, queries_byte, scale_step = dot_round(shape, read, n_pairs), SPLIT // CELLS, 4 * shape.queries_at, 4 * n_scales

    @jit
    def place_of(thread):
        """Which lanes, and the first of the cells: half a warp's threads read two places of queries, a warp's 32 words of keys."""
        return (thread >> 3) & 3, (thread & 7) + ((thread >> 2) & 8)

    @jit
    def cell_of(thread):
        part, first = place_of(thread)
        return np.int32(first + step * part)

    @jit
    def scores(start, scale, thread, values, sums):
        part, first = place_of(thread)
        for s in range(CELLS * n_quarter):
            sums[s] = ZERO
        # The cell that a thread finishes comes first, then that of its neighbour in the last level of the tree.
        c0, c1, c2, c3 = first + step * part, first + step * (part ^ 1), first + step * (part ^ 2), first + step * (part ^ 3)
        own = start + part * (eight_bytes // 4)
        k0, k1, k2, k3 = own + c0 * key_bytes, own + c1 * key_bytes, own + c2 * key_bytes, own + c3 * key_bytes
        at, by = start + queries_byte + 4 * (thread >> 6) * heads * size + 16 * part, start + 4 * scales_at
        for r in range(n_rounds):
            f = by + 4 * r
            factors = factor(f + c0 * scale_step), factor(f + c1 * scale_step), factor(f + c2 * scale_step), factor(f + c3 * scale_step)
            go_on(at, (k0, k1, k2, k3), factors, values, sums)
            at += 64 * n_pairs
            k0 += 2 * n_pairs * eight_bytes
            k1 += 2 * n_pairs * eight_bytes
            k2 += 2 * n_pairs * eight_bytes
            k3 += 2 * n_pairs * eight_bytes
        for s in range(2 * n_quarter):
            sums[s] = add(sums[s], exchange_float(sums[s + 2 * n_quarter], np.int32(16)))
        for s in range(n_quarter):
            sums[s] = add(sums[s], exchange_float(sums[s + n_quarter], np.int32(8)))
        for h in range(heads):
            sums[h] = mul(add(sums[2 * h], sums[2 * h + 1]), scale)

    return scores, cell_of


@jit
def _ordered(word):
    """Bits of floats to integers of the same order, and back; where a score is not a number, its head's results are not either."""
    return np.int32(word ^ ((word >> 31) & SIGN_MASK))


def tile_softmax(shape, target: Target):
    """Build `largest(...)`, a warp's largest scores; `weigh(...)`, weights with the largest of the team's two warps; `total_of(...)`.

    `total_of(start, query, n)`: largest score and sum of weights, a chain over n cells.
    """
    heads, pitch, team_pitch, weights_byte, tops_byte = shape.heads, 4 * shape.pitch, shape.team_pitch, 4 * shape.weights_at, 4 * shape.tops_at
    n_quads, over_warp, place_of = shape.team_pitch // 4, integers(target).largest, query_byte(shape)

    @jit
    def largest(start, thread, is_cell, sums, tops):
        for h in range(heads):
            own = _ordered(bits(sums[h]))
            tops[h] = over_warp(own if is_cell else LOWEST)
        if thread & 31 == 0:
            to = start + tops_byte + 4 * team_pitch * (thread >> 5)
            for h in range(heads):
                store_shared_float(to + 4 * h, from_bits(_ordered(tops[h])))

    @jit
    def larger(a, b):
        return b if b > a else a

    @jit
    def weigh(start, thread, cell, sums):
        one = start + tops_byte + 8 * team_pitch * (thread >> 6)
        other, to = one + 4 * team_pitch, start + weights_byte + cell * pitch + 4 * team_pitch * (thread >> 6)
        for quad in range(n_quads):
            a0, a1, a2, a3 = shared_four_floats(one + 16 * quad)
            b0, b1, b2, b3 = shared_four_floats(other + 16 * quad)
            h = 4 * quad
            w0 = exp_below(sub(sums[h], larger(a0, b0)))
            w1 = exp_below(sub(sums[h + 1], larger(a1, b1))) if h + 1 < heads else ZERO
            w2 = exp_below(sub(sums[h + 2], larger(a2, b2))) if h + 2 < heads else ZERO
            w3 = exp_below(sub(sums[h + 3], larger(a3, b3))) if h + 3 < heads else ZERO
            store_shared_four_floats(to + 16 * quad, w0, w1, w2, w3)

    @jit
    def total_of(start, query, n):
        team, h = query // heads, query % heads
        tops = start + tops_byte + 4 * (2 * team * team_pitch + h)
        at, total = start + weights_byte + place_of(query), ZERO
        for _ in range(n // SUMMED_AT_ONCE):
            for c in range(SUMMED_AT_ONCE):
                total = add(total, shared_float(at + c * pitch))
            at += SUMMED_AT_ONCE * pitch
        for _ in range(n % SUMMED_AT_ONCE):
            total = add(total, shared_float(at))
            at += pitch
        return larger(shared_float(tops), shared_float(tops + 4 * team_pitch)), total

    return largest, weigh, total_of


def query_byte(shape):
    """Build `place_of(query)`: bytes before a query's value where teams have theirs side by side."""
    heads, team_pitch = shape.heads, shape.team_pitch

    @jit
    def place_of(query):
        return 4 * (query // heads * team_pitch + query % heads)

    return place_of


def tile_values(shape, read: TileReader):
    """Build `accumulate(start, n, team, dim, weights, sums)`: four dimensions' value sums of a team's heads."""
    heads, pitch, team_pitch, weights_byte = shape.heads, 4 * shape.pitch, shape.team_pitch, 4 * shape.weights_at
    row_bytes, values_byte, n_scales, scales_byte = 16 * shape.pieces, 4 * shape.values_at, shape.n_scales, 4 * (shape.scales_at + SPLIT * shape.n_scales)
    four, factor, dim_bytes, n_quads, per_scale = read.four, read.factor, read.eight_bytes // 8, shape.team_pitch // 4, shape.size // max(shape.n_scales, 1)

    @jit
    def add_cell(at, by, from_weights, weights, sums):
        v0, v1, v2, v3 = four(at, factor(by))
        for quad in range(n_quads):
            h = 4 * quad
            weights[h], weights[h + 1], weights[h + 2], weights[h + 3] = shared_four_floats(from_weights + 16 * quad)
        for h in range(heads):
            sums[4 * h] = fma(weights[h], v0, sums[4 * h])
            sums[4 * h + 1] = fma(weights[h], v1, sums[4 * h + 1])
            sums[4 * h + 2] = fma(weights[h], v2, sums[4 * h + 2])
            sums[4 * h + 3] = fma(weights[h], v3, sums[4 * h + 3])

    @jit
    def _no_cells(at, by, from_weights, weights, sums):
        """The end of a chain of cells."""
        return

    def several(cell):
        if cell == CELLS_AT_ONCE:
            return _no_cells
        following = several(cell + 1)

        @jit
        def add_cells(at, by, from_weights, weights, sums):
            add_cell(at + cell * row_bytes, by + 4 * cell * n_scales, from_weights + cell * pitch, weights, sums)
            following(at, by, from_weights, weights, sums)

        return add_cells

    add_cells = several(0)

    @jit
    def accumulate(start, n, team, dim, weights, sums):
        for i in range(4 * heads):
            sums[i] = ZERO
        at, by = start + values_byte + dim_bytes * dim, start + scales_byte + 4 * (dim // per_scale)
        from_weights = start + weights_byte + 4 * team_pitch * team
        for _ in range(n // CELLS_AT_ONCE):
            add_cells(at, by, from_weights, weights, sums)
            at += CELLS_AT_ONCE * row_bytes
            by += 4 * CELLS_AT_ONCE * n_scales
            from_weights += CELLS_AT_ONCE * pitch
        for _ in range(n % CELLS_AT_ONCE):
            add_cell(at, by, from_weights, weights, sums)
            at += row_bytes
            by += 4 * n_scales
            from_weights += pitch

    return accumulate


def tile_merge(shape):
    """Build `merge(start, team, fresh, merged)`: a team's value sums of a split join those before."""
    heads, team_pitch, old_byte, new_byte, n_quads = shape.heads, shape.team_pitch, 4 * shape.old_at, 4 * shape.new_at, shape.team_pitch // 4

    @jit
    def join(fresh, merged, h, old, new):
        if h < heads:
            for d in range(4):
                merged[4 * h + d] = fma(fresh[4 * h + d], new, mul(merged[4 * h + d], old))

    @jit
    def merge(start, team, fresh, merged):
        at = start + 4 * team_pitch * team
        for quad in range(n_quads):
            o0, o1, o2, o3 = shared_four_floats(at + old_byte + 16 * quad)
            n0, n1, n2, n3 = shared_four_floats(at + new_byte + 16 * quad)
            join(fresh, merged, 4 * quad, o0, n0)
            join(fresh, merged, 4 * quad + 1, o1, n1)
            join(fresh, merged, 4 * quad + 2, o2, n2)
            join(fresh, merged, 4 * quad + 3, o3, n3)

    return merge


def tile_results(shape):
    """Build `logits_at(row, head, dim)` and `store(...)`: a thread's results gated and coded, head by head, the next gate on its way."""
    size, heads, n_q, team_pitch, totals_byte, queries_byte = shape.size, shape.heads, shape.n_q, shape.team_pitch, 4 * shape.old_at, 4 * shape.queries_at

    @jit
    def logits_at(row, head, dim):
        return 4 * ((2 * (np.int64(row) * n_q + head) + 1) * size + dim)

    @jit
    def finish(at, is_dim, a, b, c, d, total, gates, thread, out, gated, codes, turned, scales, sums):
        g0, g1, g2, g3 = gates
        a, b, c, d = div(a, total), div(b, total), div(c, total), div(d, total)
        if is_dim:
            store_four_floats(out, 4 * at, a, b, c, d)
        a, b, c, d = mul(a, sigmoid(g0)), mul(b, sigmoid(g1)), mul(c, sigmoid(g2)), mul(d, sigmoid(g3))
        if is_dim:
            store_four_floats(gated, 4 * at, a, b, c, d)
        code_fours(a, b, c, d, thread & 31, is_dim, at >> 5, codes, turned, scales, sums)

    @jit
    def store(start, thread, row, head, dim, is_dim, merged, gates, projected, out, gated, codes, turned, scales, sums):
        team, at = thread >> 6, (np.int64(row) * n_q + head) * size + dim
        parked, total_at = start + queries_byte + 4 * (team * heads * size + dim), start + totals_byte + 4 * team_pitch * team
        # In shared memory one loop over heads finds them, whose code is short enough for the instruction cache.
        if is_dim:
            for h in range(heads):
                store_shared_four_floats(parked + 4 * size * h, merged[4 * h], merged[4 * h + 1], merged[4 * h + 2], merged[4 * h + 3])
        for h in range(heads):
            a, b, c, d = shared_four_floats(parked)
            following = load_four_floats(projected, logits_at(row, head + min(np.int32(h + 1), np.int32(heads - 1)), dim))
            finish(at, is_dim, a, b, c, d, shared_float(total_at), gates, thread, out, gated, codes, turned, scales, sums)
            gates = following
            at += size
            parked += 4 * size
            total_at += 4

    return logits_at, store
