"""Prefix hashes: what a row's conversation consists of, up to and including its token.

Rows of a stage's windows are numbered in the order of their windows; `parent` of a row is the row before it in its
conversation, which may lie in an earlier window: the last one at that position, so that rows that were rejected have no
descendants outside their window.  hash = mix(hash of the parent + (token + 1) * GOLDEN), from a seed made of the request's
number: equal hashes mean the same request with the same tokens, hence the same position.  Does not know: taps.
"""

from collections.abc import Sequence

import numpy as np

from strata.numerics.cpu import kernel
from strata.numerics.hashing import GOLDEN, ONE, STRIDE_A, mix
from strata.rows import Window

NONE = -1


@kernel
def chain(tokens, parent, requests, out):
    """out uint64 [rows]: the prefix hash of each row; tokens, parent, requests int32 [rows], parent[i] < i or -1."""
    for i in range(tokens.shape[0]):
        if parent[i] >= 0:
            before = out[parent[i]]
        else:
            before = mix((np.uint64(requests[i]) + ONE) * STRIDE_A)
        out[i] = mix(before + (np.uint64(tokens[i]) + ONE) * GOLDEN)


def parents(windows: Sequence[Window], requests: Sequence[np.ndarray]) -> np.ndarray:
    """Return int32 [rows of all windows]: the row before each, -1 at a conversation's start; requests int32 per window's row."""
    latest: dict[int, list[int]] = {}
    out = np.arange(-1, sum(window.n_rows for window in windows) - 1, dtype=np.int32)
    base = 0
    for window, names in zip(windows, requests, strict=True):
        for first, segment in zip(window.first.tolist(), window.segments, strict=True):
            known = latest.setdefault(int(names[first]), [])
            start, row = segment.start, base + first
            out[row] = known[start - 1] if 0 < start <= len(known) else NONE
            known[start:] = range(row, row + len(segment.tokens))
        base += window.n_rows
    return out


def ancestors(rows: np.ndarray, ages: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Return the row `ages[i]` rows before rows[i], -1 before the conversation's start."""
    out = rows.copy()
    for age in range(1, int(ages.max(initial=0)) + 1):
        moves = (ages >= age) & (out >= 0)
        out[moves] = parent[out[moves]]
    return out
