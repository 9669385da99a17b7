"""Sections 10.3 and 11: K/V cells, pooled keys, block scores, the choice of cells, attention in splits."""

import numpy as np

from tests.unit.numerics.stranger.arithmetic import F32, fma, from_bits, half, magnitude, round_even, saturated_half
from tests.unit.numerics.stranger.functions import best_first, exp
from tests.unit.numerics.stranger.rotary import turned
from tests.unit.numerics.stranger.sums import dot8, normed


def stored(kv: str, x) -> tuple[np.ndarray, np.ndarray]:
    """A cell's vectors [..., D] as (codes, scales)."""
    x = np.asarray(x, F32)
    none = np.zeros((*x.shape[:-1], 0), np.uint16)
    if kv == "f32":
        return x, none
    if kv == "f16":
        return saturated_half(x), none
    groups = x.reshape(*x.shape[:-1], -1, 64)
    with np.errstate(all="ignore"):
        marks = saturated_half(from_bits(magnitude(groups).max(axis=-1)) / F32(127))
        scale = half(marks)[..., None]
        q = np.where(scale > 0, groups / scale, F32(0))
        codes = round_even(np.where(q > 127, F32(127), np.where(q < -127, F32(-127), q)))
    return codes.astype(np.int8).reshape(x.shape), marks


def read_back(kv: str, codes, marks) -> np.ndarray:
    if kv == "int8":
        return (codes.reshape(*marks.shape, 64).astype(F32) * half(marks)[..., None]).reshape(codes.shape)
    return half(codes) if kv == "f16" else codes


def pooled(raw, norm, first_row, eps, n_lanes: int = 32) -> np.ndarray:
    """One block's key from its raw keys [b, Di] as stored."""
    with np.errstate(all="ignore"):
        total = raw[0]
        for other in raw[1:]:
            total = total + other
        mean = total / F32(len(raw))
    return turned(normed(mean, norm, eps, n_lanes), first_row)


def block_scores(queries, keys) -> np.ndarray:
    """queries [heads, Di], pooled keys [blocks, Di] -> [blocks]."""
    total = np.zeros(len(keys), F32)
    with np.errstate(all="ignore"):
        for query in queries:
            m = dot8(query, keys)
            total = total + np.where((m > 0) | np.isnan(m), m, F32(0))
    return total


def selected(scores, position: int, width: int, block: int) -> list[int]:
    """Ascending cells."""
    n_cells = position + 1
    if n_cells <= width:
        return list(range(n_cells))
    n_blocks = n_cells // block
    tail = list(range(n_blocks * block, n_cells))
    whole, part = divmod(width - len(tail), block)
    ranked = best_first(scores[:n_blocks])
    cells = [b * block + i for b in ranked[:whole] for i in range(block)]
    if part:
        cells += [ranked[whole] * block + i for i in range(part)]
    return sorted(int(cell) for cell in cells + tail)


def _split(q, keys, values):
    scores = dot8(q, keys) * (F32(1) / np.sqrt(F32(len(q))))
    m = scores[0]
    for score in scores[1:]:
        m = score if score > m else m
    total, value = F32(0), np.zeros(values.shape[1], F32)
    for e, row in zip(exp(scores - m), values, strict=True):
        total, value = total + e, fma(e, row, value)
    return m, total, value


def attended(q, keys, values, split: int = 64) -> np.ndarray:
    """One head's query [D] over its selected cells, ascending: keys, values float32 [cells, D]."""
    with np.errstate(all="ignore"):
        m = total = value = None
        for at in range(0, len(keys), split):
            fresh = _split(q, keys[at : at + split], values[at : at + split])
            if m is None:
                m, total, value = fresh
                continue
            highest = fresh[0] if fresh[0] > m else m
            old, new = exp(m - highest), exp(fresh[0] - highest)
            total, value, m = fma(fresh[1], new, total * old), fma(fresh[2], new, value * old), highest
        return value / total
