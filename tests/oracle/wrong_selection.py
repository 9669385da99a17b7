"""Plausible misreadings of the indexer: scores, pooled keys, the dead key, and the rule that fills the selection.

Same form as `wrong_steps`.  Scores move even where every cell is selected; `WRONG_FILLS` differ only beyond the width.
Does not know: how large the damage is.
"""

import numpy as np

from tests.oracle.attention import block_scores, dead_key, pooled_keys
from tests.oracle.elementary import linear, rms, rope, softmax
from tests.oracle.wrong_steps import WrongStep

SCORES, POOLED, FILL = "operations.block_scores", "operations.pooled_keys", "operations.select_cells"


def pooled_with(raw_keys, norm, block, base, dims, eps, first_block=0, *, shift=0, stride=None, early_norm=False):
    """`pooled_keys` turned to another position of the block, or normed before the mean."""
    n_blocks = len(raw_keys) // block
    cells = (rms(raw_keys, eps) if early_norm else raw_keys)[: n_blocks * block]
    means = cells.reshape(n_blocks, block, raw_keys.shape[1]).mean(axis=1)
    positions = (first_block + np.arange(n_blocks)) * (stride or block) + shift
    return rope((means if early_norm else rms(means, eps)) * norm, positions, base, dims)


def first_key_of_block(raw_keys, norm, block, *rest, **named):
    """`pooled_keys` with a block's first raw key in the place of its mean."""
    firsts = raw_keys[: len(raw_keys) // block * block : block]
    return pooled_keys(np.repeat(firsts, block, axis=0), norm, block, *rest, **named)


def displaced_dead_key(first_raw_key, norm, block, base, dims, eps):
    """`dead_key` at the position of block 1."""
    return rope(dead_key(first_raw_key, norm, block, base, dims, eps)[None], np.array([block]), base, dims)[0]


def ranked_cells(scores, position, block, *, tail_bonus=True, tie=1):
    """All cells by (score descending, cell ascending or, with tie=-1, descending); tail cells first or last."""
    n_blocks = (position + 1) // block
    tail_score = np.inf if tail_bonus else -np.inf
    per_cell = [scores[c // block] if c // block < n_blocks else tail_score for c in range(position + 1)]
    return sorted(range(position + 1), key=lambda cell: (-per_cell[cell], tie * cell))


def fill_with(scores, position, width, block, **changes):
    """`select_cells` with another ranking."""
    return np.sort(ranked_cells(scores, position, block, **changes)[:width])


def whole_blocks(scores, position, width, block):
    """`select_cells` that leaves out a block it cannot take whole."""
    tail = (position + 1) % block
    taken = tail + (width - tail) // block * block
    return np.sort(ranked_cells(scores, position, block)[:taken])


def own_block_forced(scores, position, width, block):
    """`select_cells` where the query's own block always wins, tail or not."""
    forced = np.array(scores, dtype=np.float64)
    if (position + 1) % block == 0:
        forced[position // block] = np.inf
    return fill_with(forced, position, width, block)


def newest_cells(scores, position, width, block):
    """`select_cells` as a sliding window."""
    return np.arange(max(0, position + 1 - width), position + 1)


WRONG_SCORES = [
    WrongStep("lets negative products count", SCORES, lambda q, k: linear(q, k).sum(axis=-2)),
    WrongStep("takes the largest head", SCORES, lambda q, k: np.maximum(0.0, linear(q, k)).max(axis=-2)),
    WrongStep("scales by the root of the key size", SCORES, lambda q, k: block_scores(q, k) / 32**0.5),
    WrongStep("takes a softmax over blocks", SCORES, lambda q, k: softmax(block_scores(q, k))),
    WrongStep("norms keys before the mean", POOLED, lambda *a, **n: pooled_with(*a, **n, early_norm=True)),
    WrongStep("turns to the block's last position", POOLED, lambda *a, **n: pooled_with(*a, **n, shift=3)),
    WrongStep("turns by the block's number", POOLED, lambda *a, **n: pooled_with(*a, **n, stride=1)),
    WrongStep("takes a block's first key", POOLED, first_key_of_block),
    WrongStep("displaces the dead key", "operations.dead_key", displaced_dead_key),
]  # fmt: skip

WRONG_FILLS = [
    WrongStep("prefers higher cells at ties", FILL, lambda *a: fill_with(*a, tie=-1)),
    WrongStep("lets tail cells lose", FILL, lambda *a: fill_with(*a, tail_bonus=False)),
    WrongStep("takes whole blocks only", FILL, whole_blocks),
    WrongStep("forces the query's own block", FILL, own_block_forced),
    WrongStep("takes the newest cells", FILL, newest_cells),
    WrongStep("takes the lowest scores", FILL, lambda s, *a: fill_with(-np.asarray(s), *a)),
]  # fmt: skip
