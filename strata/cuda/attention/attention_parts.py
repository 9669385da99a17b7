"""The pieces of attention over one split of cells: scores, softmax weights, value sums, merge, output gate.

The orders of host/attention.py.  A thread block has one row and one K/V head with its group of query heads.  Keys pass through
shared memory and a thread makes the scores of one cell for a few heads (all eight lanes of each dot product); a warp turns a
head's scores into exp(score - maximum); a thread makes one dimension of all heads' value sums.  `split_attention.py` puts them
together.  Does not know: which cells, where splits run.
"""

from dataclasses import dataclass

import numpy as np

from strata.cuda.attention.key_reads import cell_reader, piece_place
from strata.cuda.machine.on_cuda import exp, sigmoid
from strata.cuda.machine.seam import Target, add, copies, div, exchange_float, fma, jit, load_four_floats, mul, sub
from strata.cuda.packed.group_codes import group_coder

ZERO = np.float32(0.0)
SPLIT = 64
"""Cells per split: part of the contract."""
KEY_BYTES = 32768
"""Shared memory for keys: a split passes in as many parts as its format needs."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Geometry and variant: `dense` attends to cells 0 .. position; `looped` merges inside the block."""

    n_q: int
    n_kv: int
    size: int
    kv: str
    dense: bool
    looped: bool

    @property
    def group(self) -> int:
        """Query heads of a K/V head."""
        return self.n_q // self.n_kv

    @property
    def heads_per_thread(self) -> int:
        """Query heads whose scores one thread makes for its cell."""
        return next(n for n in (3, 2, 1) if self.group % n == 0)

    @property
    def teams(self) -> int:
        return self.group // self.heads_per_thread

    @property
    def n_threads(self) -> int:
        """A thread per cell and team of heads."""
        return SPLIT * self.teams

    @property
    def padded_group(self) -> int:
        """Floats per cell of the softmax weights: whole vectors of four."""
        return (self.group + 3) // 4 * 4

    @property
    def cells_per_part(self) -> int:
        """Cells whose keys fit into shared memory at once."""
        return min(SPLIT, KEY_BYTES // (16 * cell_reader(self.kv, self.size).pieces))

    @property
    def queries_at(self) -> int:
        """Floats of shared memory before the queries: the keys."""
        return self.cells_per_part * 4 * cell_reader(self.kv, self.size).pieces

    @property
    def weights_at(self) -> int:
        """Floats before the softmax weights [cells, padded group]; maxima, old and new factors of the heads and cell ids follow."""
        return self.queries_at + self.group * self.size

    @property
    def tops_at(self) -> int:
        return self.weights_at + SPLIT * self.padded_group

    @property
    def ids_at(self) -> int:
        return self.tops_at + 3 * self.group

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.ids_at + SPLIT)


def key_scores(shape: AttentionShape, target: Target):
    """Build `stage(...)` and `score(...)`: keys of a part of a split to shared memory; one cell's scores for some heads."""
    size, heads = shape.size, shape.heads_per_thread
    reader = cell_reader(shape.kv, size)
    pieces, per_piece, unpack, factor = reader.pieces, reader.per_piece, reader.unpack, reader.factor
    row_bytes = 16 * pieces
    place_of = piece_place(0, row_bytes, reader.turn)
    pieces_per_step = max(8 // per_piece, 1)
    n_values = pieces_per_step * per_piece
    n_sums = 8 * heads
    n_threads, n_kv, queries_at, ids_at = shape.n_threads, shape.n_kv, shape.queries_at, shape.ids_at
    move = copies(target, 0)
    copy16, commit, wait = move.copy16, move.commit, move.wait

    @jit
    def stage(shared, codes, first_vector, ids, begin, n, thread):
        """Keys of the split's cells begin .. begin + n - 1; a cell's vector is first_vector + id * n_kv."""
        for i in range(thread, n * pieces, n_threads):
            cell, piece = i // pieces, i % pieces
            source = (first_vector + np.int64(ids[ids_at + begin + cell]) * n_kv) * row_bytes + 16 * piece
            copy16(shared, np.int64(place_of(cell, piece)), codes, source)
        commit()
        wait()

    @jit
    def score(shared, cell, first_head, scales, vector, values, sums):
        """sums[8 h + lane] of heads first_head .. first_head + heads - 1 with the key at place `cell`."""
        for s in range(n_sums):
            sums[s] = ZERO
        for step in range(pieces // pieces_per_step):
            for p in range(pieces_per_step):
                piece = step * pieces_per_step + p
                unpack(shared, np.int64(place_of(cell, piece)), factor(scales, vector, piece * per_piece), values, p * per_piece)
            for h in range(heads):
                at = 4 * (queries_at + (first_head + h) * size + step * n_values)
                for eight in range(n_values // 8):
                    q0, q1, q2, q3 = load_four_floats(shared, at + 32 * eight)
                    q4, q5, q6, q7 = load_four_floats(shared, at + 32 * eight + 16)
                    v, s = 8 * eight, 8 * h
                    sums[s] = fma(q0, values[v], sums[s])
                    sums[s + 1] = fma(q1, values[v + 1], sums[s + 1])
                    sums[s + 2] = fma(q2, values[v + 2], sums[s + 2])
                    sums[s + 3] = fma(q3, values[v + 3], sums[s + 3])
                    sums[s + 4] = fma(q4, values[v + 4], sums[s + 4])
                    sums[s + 5] = fma(q5, values[v + 5], sums[s + 5])
                    sums[s + 6] = fma(q6, values[v + 6], sums[s + 6])
                    sums[s + 7] = fma(q7, values[v + 7], sums[s + 7])

    return stage, score, n_values, n_sums


@jit
def larger(a, b):
    """The larger of two, a where they have no order."""
    return b if b > a else a


@jit
def column_sum(shared, at, pitch, n):
    """The chain over n values that lie `pitch` floats apart, ascending."""
    total = ZERO
    for cell in range(n):
        total = add(total, shared[at + cell * pitch])
    return total


@jit
def largest_of(a, b):
    """The largest of two values of each thread of a warp, for all of them."""
    top = larger(a, b)
    top = larger(top, exchange_float(top, np.int32(16)))
    top = larger(top, exchange_float(top, np.int32(8)))
    top = larger(top, exchange_float(top, np.int32(4)))
    top = larger(top, exchange_float(top, np.int32(2)))
    return larger(top, exchange_float(top, np.int32(1)))


@jit
def weigh_column(shared, at, pitch, n, lane):
    """A warp turns n (1 .. 64) scores that lie `pitch` floats apart into exp(score - maximum), in place; return the maximum."""
    first, second = at + lane * pitch, at + (lane + 32) * pitch
    a = shared[first if lane < n else at]
    b = shared[second if lane + 32 < n else at]
    top = largest_of(a, b)
    if lane < n:
        shared[first] = exp(sub(a, top))
    if lane + 32 < n:
        shared[second] = exp(sub(b, top))
    return top


def softmax(shape: AttentionShape):
    """Build `weigh(...)`: a warp turns a head's scores of a split into exp(score - maximum), in place."""
    n_warps, group, pitch, weights_at, tops_at = shape.n_threads // 32, shape.group, shape.padded_group, shape.weights_at, shape.tops_at

    @jit
    def weigh(shared, n, thread):
        for h in range(thread >> 5, group, n_warps):
            top = weigh_column(shared, weights_at + h, pitch, n, thread & 31)
            if thread & 31 == 0:
                shared[tops_at + h] = top

    return weigh


def value_sums(shape: AttentionShape, n_ahead: int):
    """Build `accumulate(...)`: one dimension's value sums of all heads of the group, a chain over the split's cells."""
    size, group, pitch, n_kv, weights_at, ids_at = (
        shape.size, shape.group, shape.padded_group, shape.n_kv, shape.weights_at, shape.ids_at
    )
    value = cell_reader(shape.kv, size).value

    @jit
    def add_cell(shared, cell, v, sums, at):
        for quad in range(pitch // 4):
            e0, e1, e2, e3 = load_four_floats(shared, 4 * np.int64(weights_at + cell * pitch + 4 * quad))
            h = at + 4 * quad
            sums[h] = fma(e0, v, sums[h])
            if 4 * quad + 1 < group:
                sums[h + 1] = fma(e1, v, sums[h + 1])
            if 4 * quad + 2 < group:
                sums[h + 2] = fma(e2, v, sums[h + 2])
            if 4 * quad + 3 < group:
                sums[h + 3] = fma(e3, v, sums[h + 3])

    @jit
    def accumulate(shared, codes, scales, first_vector, ids, n, dim, sums, at, ahead):
        for h in range(group):
            sums[at + h] = ZERO
        for begin in range(0, n, n_ahead):
            for c in range(n_ahead):
                if begin + c < n:
                    ahead[c] = value(codes, scales, first_vector + np.int64(ids[ids_at + begin + c]) * n_kv, dim)
            for c in range(n_ahead):
                if begin + c < n:
                    add_cell(shared, begin + c, ahead[c], sums, at)

    return accumulate


@jit
def merge_factors(top, total, old_top, old_total):
    """One step of the merge: (maximum, sum, factor of the old values, factor of the new ones)."""
    highest = top if top > old_top else old_top
    old, new = exp(sub(old_top, highest)), exp(sub(top, highest))
    return highest, fma(total, new, mul(old_total, old)), old, new


def gated_output(shape: AttentionShape, target: Target):
    """Build `finish(...)`: value / sum, times the gate, and the codes of a warp's 32 neighbouring dimensions."""
    size, n_q, code_group = shape.size, shape.n_q, group_coder(target)

    @jit
    def finish(value, total, gate, row, head, dim, out, gated, codes, turned, scales, sums):
        at = (np.int64(row) * n_q + head) * size + dim
        result = div(value, total)
        out[at] = result
        result = mul(result, gate)
        gated[at] = result
        code_group(result, dim & 31, at >> 5, codes, turned, scales, sums)

    return finish


def output_gate(shape: AttentionShape, target: Target):
    """Build `finish(...)` as `gated_output` does, with the gate made of its logit."""
    size, n_q, finish_gated = shape.size, shape.n_q, gated_output(shape, target)

    @jit
    def finish(value, total, row, head, dim, projected, out, gated, codes, turned, scales, sums):
        gate = sigmoid(projected[(2 * (np.int64(row) * n_q + head) + 1) * size + dim])
        finish_gated(value, total, gate, row, head, dim, out, gated, codes, turned, scales, sums)

    return finish
