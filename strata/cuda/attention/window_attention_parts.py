"""The pieces of window_attention.py: how a split's keys and values arrive, scores, softmax weights, value sums.

Two neighbouring threads of a team make a cell's scores for the team's heads, each with four lanes of every dot product; a warp turns a
head's scores into exp(score - maximum); a thread makes two dimensions of its team's value sums.  `shape` is a StagedShape.
Does not know: rows, which split.
"""

import numpy as np

from strata.cuda.attention.attention_parts import SPLIT, ZERO, column_sum, weigh_column
from strata.cuda.attention.key_reads import cell_reader, piece_place
from strata.cuda.attention.staged_reads import dot_steps
from strata.cuda.machine.addresses import copier, copy_series, global_address
from strata.cuda.machine.seam import (
    Target, add, copies, exchange_float, fma, half, jit, load_four_floats, load_two_floats, load_u16, mul,
)

CELLS_AT_ONCE = 8
WARP = 32
TEAM = 2 * SPLIT
"""Threads of a team, which has a few heads of the block: two a cell, or one for every two dimensions."""


def arrival(shape, target: Target):
    """Build `ask(...)`: queries; `fetch(...)`: keys, then values of the split's n cells, each a group of copies."""
    reader, copy16, commit = cell_reader(shape.kv, shape.size), copier(16, 0, 0, target), copies(target, 0).commit
    pieces, n_scales, n_threads, n_kv = reader.pieces, shape.n_scales, shape.n_threads, shape.n_kv
    row_bytes, values_byte, scales_at, ids_at = 16 * pieces, 4 * shape.values_at, shape.scales_at, shape.ids_at
    place_of = piece_place(0, row_bytes, reader.turn)
    size, query_bytes, queries_byte = shape.size, 4 * shape.group * shape.size, 4 * shape.queries_at
    step, cells_at_once = 16 * n_threads, n_threads // pieces
    copy_queries = copy_series(16, -(-query_bytes // step), step, step, step, target)

    @jit
    def ask(at, queries, first_head, thread):
        part = 16 * thread
        copy_queries(at + (queries_byte + part), global_address(queries) + (4 * first_head * size + part), np.int32(query_bytes - part))

    @jit
    def vector_at(ids, cell, piece):
        return np.int64(ids[np.uint64(ids_at + cell)]) * (n_kv * row_bytes) + 16 * piece

    @jit
    def fetch(at, shared, ids, k_codes, k_scales, v_codes, v_scales, first_vector, n, thread):
        """A thread copies the same piece of every cells_at_once-th cell."""
        keys, values = global_address(k_codes) + first_vector * row_bytes, global_address(v_codes) + first_vector * row_bytes
        piece, first = np.int32(thread % pieces), np.int32(thread // pieces)
        if first >= cells_at_once:
            first = n
        for cell in range(first, n, cells_at_once):
            copy16(at + place_of(cell, piece), keys + vector_at(ids, cell, piece))
        commit()
        for cell in range(first, n, cells_at_once):
            copy16(at + (values_byte + row_bytes * cell + 16 * piece), values + vector_at(ids, cell, piece))
        commit()
        for i in range(thread, n * n_scales, n_threads):
            cell, which = i // n_scales, i % n_scales
            vector = first_vector + np.int64(ids[ids_at + cell]) * n_kv
            source = 2 * (vector * n_scales + which)
            shared[scales_at + i] = half(load_u16(k_scales, source))
            shared[scales_at + SPLIT * n_scales + i] = half(load_u16(v_scales, source))

    return ask, fetch


def split_scores(shape, read):
    """Build `scores(...)`: a cell's scores for some heads, by two neighbouring threads."""
    size, heads, pitch, queries_at, weights_at = shape.size, shape.heads_per_thread, shape.pitch, shape.queries_at, shape.weights_at
    team_pitch = shape.team_pitch
    step, rounds, round_bytes = dot_steps(size, heads, read), read.rounds, 32 * read.per_round

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


def split_softmax(shape):
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
        return column_sum(shared, weights_at + head // heads * team_pitch + head % heads, pitch, n)

    return weigh, total_of


def split_values(shape, pair):
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
