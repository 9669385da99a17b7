"""Sparse attention's steps: head norms, the indexer's pooled keys and scores, the choice of cells, the softmax.

Contract: float64; cells are positions of one session from 0; ids are int64, ascending.  Selection rule `fill`: when
more than `width` cells exist, the tail cells first, then cells by (block score descending, cell ascending) until
exactly `width` are taken.  Does not know: projections' weights, layers, windows.
"""

import numpy as np

from tests.oracle.elementary import linear, rms, rope, sigmoid, softmax, widened

TAIL_BONUS = 1e9
"""Added to the score of the tail block, so that it wins against every complete block."""


def normed_heads(x, norm, positions, base: float, dims: int, eps: float) -> np.ndarray:
    """rope(rms(x) * norm, position): x [rows, heads, size], norm [size], positions [rows] -> same shape."""
    return rope(rms(x, eps) * widened(norm), positions, base, dims)


def split_query_gate(x, n_heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut [rows, heads * 2D] into query and output gate, each [rows, heads, D] (per head: query first, then gate)."""
    x = widened(x)
    pairs = x.reshape(len(x), n_heads, 2, -1)
    return pairs[:, :, 0], pairs[:, :, 1]


def pooled_keys(raw_keys, norm, block: int, base: float, dims: int, eps: float, first_block: int = 0) -> np.ndarray:
    """One key per complete block of cells.

    raw_keys [cells, Di] (cells from first_block * block on; an incomplete end is left out), norm [Di]
    -> [complete blocks, Di]; the mean of a block's raw keys, normed and turned to the block's first position.
    """
    raw_keys = widened(raw_keys)
    n_blocks = len(raw_keys) // block
    means = raw_keys[: n_blocks * block].reshape(n_blocks, block, raw_keys.shape[1]).mean(axis=1)
    return rope(rms(means, eps) * widened(norm), (first_block + np.arange(n_blocks)) * block, base, dims)


def dead_key(first_raw_key, norm, block: int, base: float, dims: int, eps: float) -> np.ndarray:
    """The formal key of the tail block: cell 0's raw key [Di] repeated `block` times, at position 0 -> [Di]."""
    return pooled_keys(np.tile(widened(first_raw_key), (block, 1)), norm, block, base, dims, eps)[0]


def block_scores(queries, pooled) -> np.ndarray:
    """sum_h max(0, q_h . k_B): queries [..., Ni, Di], pooled [blocks, Di] -> [..., blocks]."""
    return np.maximum(0.0, linear(queries, pooled)).sum(axis=-2)


def select_cells(scores, position: int, width: int, block: int) -> np.ndarray:
    """Choose the cells a query at `position` attends to (rule `fill`).

    scores [>= complete blocks]; entries after the complete blocks (a tail's or dead key's) are ignored
    -> ascending cell ids, int64: all cells if there are at most `width`, else exactly `width`.
    """
    n_cells = position + 1
    if n_cells <= width:
        return np.arange(n_cells)
    n_blocks = n_cells // block
    tail = np.arange(n_blocks * block, n_cells)
    order = np.argsort(-widened(scores)[:n_blocks], kind="stable")
    ranked = (order[:, None] * block + np.arange(block)).reshape(-1)
    return np.sort(np.concatenate((tail, ranked[: width - len(tail)])))


def attend(query, keys, values, cells) -> np.ndarray:
    """Softmax attention of one row over the selected cells.

    query [Nq, D], keys, values [all cells, Nkv, D], cells [selected] -> [Nq, D]; query head n meets head n // (Nq/Nkv).
    """
    query = widened(query)
    chosen_keys, chosen_values = widened(keys)[cells], widened(values)[cells]
    partner = np.arange(len(query)) // (len(query) // chosen_keys.shape[1])
    scores = np.einsum("nd,snd->ns", query, chosen_keys[:, partner]) / np.sqrt(query.shape[1])
    return np.einsum("ns,snd->nd", softmax(scores), chosen_values[:, partner])


def gate_heads(attended, gate) -> np.ndarray:
    """Gate each head's result and join the heads: attended, gate [rows, Nq, D] -> [rows, Nq*D]."""
    return (widened(attended) * sigmoid(gate)).reshape(len(attended), -1)
