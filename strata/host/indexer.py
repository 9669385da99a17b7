"""The sparse attention's indexer: pooled block keys, block scores, and the choice of cells.

MODEL.md section 3.2, selection rule `fill`: exactly `width` cells, tail cells first, then cells of complete blocks by
(score descending, index ascending); rule `whole-blocks`: the same without the part of a block that fills the width.  Ranking compares one 64-bit integer: the score's rank key, then the lower block.
Everything is indexed by position, so a rejected cell is simply written again.

Orders: a pooled key's mean is a chain of adds over its cells, ascending, then one division; dot products eight lanes;
a block's score is a chain over heads of max(0, dot), with the comparison written out.
Shapes: raw keys [slots, cells, Di], pooled float32 [slots, blocks, Di].  Does not know: attention.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.fork import fork
from strata.host.cells import cell_format
from strata.host.dots import dot8
from strata.host.norms import inverse_rms
from strata.host.rope import rotate
from strata.numerics.cpu import add, div, jit, kernel, mul
from strata.numerics.on_cpu import key

ZERO = np.float32(0.0)
BLOCK_BITS = 24
"""A block's rank is its score's 32-bit key above 24 bits of reversed index: blocks number less than 2^24."""
LOWEST_RANK, HIGHEST_RANK = np.int64(-(1 << 56)), np.int64(1 << 56)


@cache
def pool_blocks(raw_format: str):
    """Return kernel(raw, scales, block, norm, eps, table, slots, positions, pooled): pools every block that a row completes."""
    load = cell_format(raw_format).load

    @kernel
    def run(raw, scales, block, norm, eps, table, slots, positions, pooled):
        size = pooled.shape[2]
        cell, total = np.empty(size, np.float32), np.empty(size, np.float32)
        for row in range(slots.shape[0]):
            if positions[row] % block != block - 1:
                continue
            start = positions[row] - block + 1
            for offset in range(block):
                load(raw[slots[row], start + offset, 0], scales[slots[row], start + offset, 0], cell)
                for i in range(size):
                    total[i] = cell[i] if offset == 0 else add(total[i], cell[i])
            for i in range(size):
                total[i] = div(total[i], np.float32(block))
            scale = inverse_rms(total, eps)
            target = pooled[slots[row], positions[row] // block]
            for i in range(size):
                target[i] = mul(mul(total[i], scale), norm[i])
            rotate(target, table[start])

    return run


@jit
def _threshold(ranks, n, n_take):
    """The n_take-th largest of ranks[:n], distinct integers, by bisection on the value."""
    low, high = LOWEST_RANK, HIGHEST_RANK
    while high - low > 1:
        middle = (low + high) >> 1
        count = 0
        for i in range(n):
            count += ranks[i] >= middle
        if count >= n_take:
            low = middle
        else:
            high = middle
    return low


@jit
def _choose(scores, n_blocks, n_cells, width, block, takes_part, ranks, out):
    """Fill out with the selected cells, ascending; return how many."""
    n_tail = n_cells - n_blocks * block
    n_whole, n_part = (width - n_tail) // block, (width - n_tail) % block if takes_part else 0
    for b in range(n_blocks):
        ranks[b] = (np.int64(key(scores[b])) << BLOCK_BITS) + (n_blocks - 1 - b)
    whole = _threshold(ranks, n_blocks, n_whole)
    part = _threshold(ranks, n_blocks, n_whole + 1) if n_part > 0 else whole
    at = 0
    for b in range(n_blocks):
        n_taken = block if ranks[b] >= whole else (n_part if ranks[b] >= part else 0)
        for offset in range(n_taken):
            out[at] = b * block + offset
            at += 1
    for cell in range(n_blocks * block, n_cells):
        out[at] = cell
        at += 1
    return at


@jit
def _score_rows(begin, end, arguments):
    queries, pooled, slots, n_scored, scores = arguments
    n_heads, size = queries.shape[1], queries.shape[2]
    for row in range(begin, end):
        for b in range(n_scored[row]):
            total = ZERO
            for h in range(n_heads):
                dot = dot8(queries[row, h], pooled[slots[row], b], size)
                total = add(total, dot if dot > ZERO or dot != dot else ZERO)
            scores[row, b] = total


@kernel
def score_blocks(control, queries, pooled, slots, n_scored, scores):
    """Score each row's first n_scored[row] blocks: queries [rows, heads, Di] rotated; n_scored int32 [rows]; scores float32 [rows, blocks]."""
    fork(control, _score_rows, queries.shape[0], 4, (queries, pooled, slots, n_scored, scores))


@jit
def _choose_rows(begin, end, arguments):
    scores, positions, block, width, takes_part, cells, counts = arguments
    ranks = np.empty(scores.shape[1], np.int64)
    for row in range(begin, end):
        n_cells = positions[row] + 1
        if n_cells <= width:
            for cell in range(n_cells):
                cells[row, cell] = cell
            counts[row] = n_cells
        else:
            counts[row] = _choose(scores[row], n_cells // block, n_cells, width, block, takes_part, ranks, cells[row])


@kernel
def choose_cells(control, scores, positions, block, width, cells, counts):
    """Choose each row's cells, all of them up to `width`: cells int32 [rows, up to width], ascending; counts int32 [rows]."""
    fork(control, _choose_rows, scores.shape[0], 4, (scores, positions, block, width, True, cells, counts))


@kernel
def choose_whole_blocks(control, scores, positions, block, width, cells, counts):
    """Choose as `choose_cells`, but blocks are taken whole or not at all: up to block - 1 cells less."""
    fork(control, _choose_rows, scores.shape[0], 4, (scores, positions, block, width, False, cells, counts))


CHOOSERS = {"fill": choose_cells, "whole-blocks": choose_whole_blocks}
"""Selection rules by name."""
