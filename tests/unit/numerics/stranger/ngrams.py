"""Section 10.5: the n-gram layer."""

import numpy as np

from tests.unit.numerics.document import float32_of
from tests.unit.numerics.stranger.arithmetic import F32
from tests.unit.numerics.stranger.functions import sigmoid, silu
from tests.unit.numerics.stranger.sums import dot8, normed

WORD = 1 << 64
SMALLEST = float32_of("358637bd")


def hashes(tokens, multipliers) -> tuple[int, int]:
    """(c0, c1, c2) after the cuts -> (bigram, trigram)."""
    c0, c1, c2 = (int(token) * int(m) % WORD for token, m in zip(tokens, multipliers, strict=True))
    return c0 ^ c1, c0 ^ c1 ^ c2


def table_rows(tokens, history, end: int, multipliers, sizes, offsets, n_bigrams: int) -> np.ndarray:
    """tokens of one session in order, history the tokens before them (oldest first) -> int64 [rows, heads]."""
    seen, out = list(history), []
    for token in tokens:
        one = seen[-1] if seen else end
        two = seen[-2] if len(seen) > 1 and one != end else end
        bigram, trigram = hashes((token, one, two), multipliers)
        out.append([(bigram if h < n_bigrams else trigram) % int(size) + int(off) for h, (size, off) in enumerate(zip(sizes, offsets, strict=True))])
        seen.append(token)
    return np.array(out, np.int64)


def gated(residual, key, value, norm_key, norm_query, eps) -> np.ndarray:
    """[rows, C, H] of the gated value."""
    rows, n_streams, hidden = residual.shape
    shape = (n_streams, hidden)
    a = normed(key.reshape(residual.shape), norm_key.reshape(shape), eps)
    b = normed(residual, norm_query.reshape(shape), eps)
    with np.errstate(all="ignore"):
        s = dot8(a, b) / np.sqrt(F32(hidden))
        size = np.where(s > 0, s, F32(0) - s)
        root = np.sqrt(np.where(size > SMALLEST, size, SMALLEST))
        root = np.where(s == 0, F32(0), np.where(s < 0, F32(0) - root, root))
        strength = np.where(np.isnan(s), s, sigmoid(root))
        return value[:, None, :] * strength[:, :, None]


def added(residual, gate, convolution) -> np.ndarray:
    with np.errstate(all="ignore"):
        return (residual + gate) + silu(convolution).reshape(residual.shape)
