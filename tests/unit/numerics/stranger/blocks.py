"""Section 8: stored blocks as integers and scales, for the formats that need no grid (`grids.py` has the others).

`decode(name, blocks)` takes uint8 [n, block bytes] and returns Parts of n * weights / 32 groups.  Everything is sliced and
shifted as the document says, in int64.
"""

from dataclasses import dataclass

import numpy as np

from tests.unit.numerics.document import format_table
from tests.unit.numerics.stranger.arithmetic import F32, half

LEVELS = np.array((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))


@dataclass(frozen=True, slots=True)
class Parts:
    """q int64 [groups, 32], d float32 [groups], s int64 [groups, 2], offset float32 [groups]."""

    q: np.ndarray
    d: np.ndarray
    s: np.ndarray
    offset: np.ndarray

    def values(self, has_offset: bool) -> np.ndarray:
        """Weights as a table look-up or mode `wide` sees them: float32 [groups * 32]."""
        value = self.d[:, None] * (self.q * np.repeat(self.s, 16, axis=1)).astype(F32)
        return (value + self.offset[:, None] if has_offset else value).reshape(-1)


def half_at(blocks, at: int) -> np.ndarray:
    return half(blocks[:, at : at + 2].copy().view("<u2")[:, 0])


def word_at(blocks, at: int, n_bytes: int) -> np.ndarray:
    return sum(blocks[:, at + i].astype(np.int64) << (8 * i) for i in range(n_bytes))


def nibbles(data) -> np.ndarray:
    """[..., 16] bytes -> [..., 32]: the low nibbles, then the high ones."""
    return np.concatenate((data & 15, data >> 4), axis=-1).astype(np.int64)


def bits_of(word, n: int) -> np.ndarray:
    return (word[..., None] >> np.arange(n)) & 1


def parts(q, d, s=None, offset=None) -> Parts:
    """q [n, groups, 32]; d [n]; s [n, groups] or [n, groups, 2]; offset [n, groups]."""
    n, n_groups = q.shape[:2]
    s = np.ones((n, n_groups), np.int64) if s is None else s
    s = np.repeat(s[..., None], 2, axis=2) if s.ndim == 2 else s
    offset = np.zeros((n, n_groups), F32) if offset is None else offset
    return Parts(q.reshape(-1, 32).astype(np.int64), np.repeat(d, n_groups), s.reshape(-1, 2).astype(np.int64), offset.reshape(-1))


def q4_0(b):
    return parts(nibbles(b[:, None, 2:18]) - 8, half_at(b, 0))


def q5_0(b):
    return parts(nibbles(b[:, None, 6:22]) + 16 * bits_of(word_at(b, 2, 4), 32)[:, None] - 16, half_at(b, 0))


def q5_1(b):
    q = nibbles(b[:, None, 8:24]) + 16 * bits_of(word_at(b, 4, 4), 32)[:, None]
    return parts(q, half_at(b, 0), offset=half_at(b, 2)[:, None])


def q8_0(b):
    return parts(b[:, None, 2:34].view(np.int8), half_at(b, 0))


def q2_0(b):
    codes = (b[:, 2:18, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
    return parts(codes.reshape(-1, 2, 32).astype(np.int64) - 1, half_at(b, 0))


def q3_k(b):
    low = np.stack([(b[:, 32 + 32 * (g // 4) : 64 + 32 * (g // 4)] >> (2 * (g % 4))) & 3 for g in range(8)], axis=1)
    high = np.stack([(b[:, :32] >> g) & 1 for g in range(8)], axis=1)
    u, v = b[:, 96:104].astype(np.int64), b[:, 104:108].astype(np.int64)
    t = [((u[:, k % 8] >> (4 * (k // 8))) & 15) + 16 * ((v[:, k % 4] >> (2 * (k // 4))) & 3) for k in range(16)]
    return parts(low.astype(np.int64) + 4 * high - 4, half_at(b, 108), np.stack(t, axis=1).reshape(-1, 8, 2) - 32)


def paired_nibbles(data) -> np.ndarray:
    """[n, 128] bytes -> [n, 8, 32]: groups 2i and 2i + 1 share 32 bytes, low and high."""
    shared = data.reshape(-1, 4, 1, 32)
    return np.concatenate((shared & 15, shared >> 4), axis=2).reshape(-1, 8, 32).astype(np.int64)


def scales_and_minimums(b) -> tuple[np.ndarray, np.ndarray]:
    a, c, e = (b[:, at : at + 4].astype(np.int64) for at in (4, 8, 12))
    t = np.concatenate((a & 63, (e & 15) + 16 * (a >> 6)), axis=1)
    m = np.concatenate((c & 63, (e >> 4) + 16 * (c >> 6)), axis=1)
    return t, half_at(b, 2)[:, None] * (0 - m).astype(F32)


def q4_k(b):
    t, offset = scales_and_minimums(b)
    return parts(paired_nibbles(b[:, 16:144]), half_at(b, 0), t, offset)


def q5_k(b):
    t, offset = scales_and_minimums(b)
    high = np.stack([(b[:, 16:48] >> g) & 1 for g in range(8)], axis=1).astype(np.int64)
    return parts(paired_nibbles(b[:, 48:176]) + 16 * high, half_at(b, 0), t, offset)


def q6_k(b):
    groups = []
    for g in range(8):
        upper, k = g // 4, g % 4
        low = b[:, 64 * upper + 32 * (k % 2) :][:, :32] >> (4 if k >= 2 else 0) & 15
        high = (b[:, 128 + 32 * upper :][:, :32] >> (2 * k)) & 3
        groups.append(low.astype(np.int64) + 16 * high - 32)
    return parts(np.stack(groups, axis=1), half_at(b, 208), b[:, 192:208].view(np.int8).reshape(-1, 8, 2))


def iq4_nl(b):
    return parts(LEVELS[nibbles(b[:, None, 2:18])], half_at(b, 0))


def iq4_xs(b):
    v, u = word_at(b, 2, 2), b[:, 4:8].astype(np.int64)
    t = [((u[:, g // 2] >> (4 * (g % 2))) & 15) + 16 * ((v >> (2 * g)) & 3) for g in range(8)]
    return parts(LEVELS[nibbles(b[:, 8:136].reshape(-1, 8, 16))], half_at(b, 0), np.stack(t, axis=1) - 32)


PLAIN_DECODERS = {
    "Q4_0": q4_0, "Q5_0": q5_0, "Q5_1": q5_1, "Q8_0": q8_0, "Q2_0": q2_0, "Q3_K": q3_k, "Q4_K": q4_k, "Q5_K": q5_k,
    "Q6_K": q6_k, "IQ4_NL": iq4_nl, "IQ4_XS": iq4_xs,
}


def has_offset(name: str) -> bool:
    return format_table()[name]["family"] == "offset"
