"""Section 8: the i-quants with grids.  Grids and sign patterns are ggml's, from the gguf library."""

import numpy as np

from tests.unit.numerics.stranger.arithmetic import F32
from tests.unit.numerics.stranger.blocks import PLAIN_DECODERS, Parts, bits_of, half_at, parts, word_at


def grid(name: str) -> np.ndarray:
    """int64 [entries, 8 or 4]."""
    import gguf.quants

    quant = getattr(gguf.quants, name)
    quant.init_grid()
    return quant.grid.reshape(quant.grid.shape[-2:]).astype(np.int64)


def signs_of_code(code) -> np.ndarray:
    """+1 or -1 for 8 weights of a seven-bit code: [...] -> [..., 8]; an even number is negative."""
    negative = bits_of(code, 7)
    return 1 - 2 * np.concatenate((negative, negative.sum(axis=-1, keepdims=True) & 1), axis=-1)


def signs_of_bits(data) -> np.ndarray:
    """[..., n] bytes -> [..., 8n] of +1 or -1."""
    return 1 - 2 * bits_of(data.astype(np.int64), 8).reshape(*data.shape[:-1], -1)


def in_groups(values) -> np.ndarray:
    return values.reshape(values.shape[0], 8, 32)


def two_nibbles(data) -> np.ndarray:
    return np.stack((data & 15, data >> 4), axis=-1).astype(np.int64)


def iq2_xxs(b):
    words = np.stack([word_at(b, 6 + 8 * g, 4) for g in range(8)], axis=1)
    index = b[:, 2:66].reshape(-1, 8, 8)[:, :, :4]
    signs = signs_of_code(np.stack([(words >> (7 * e)) & 127 for e in range(4)], axis=2))
    return parts(in_groups(grid("IQ2_XXS")[index] * signs), half_at(b, 0) * F32(0.125), 2 * (words >> 28) + 1)


def iq2_xs(b):
    both = np.stack([word_at(b, 2 + 2 * e, 2) for e in range(32)], axis=1)
    q = grid("IQ2_XS")[both & 511] * signs_of_code(both >> 9)
    return parts(in_groups(q), half_at(b, 0) * F32(0.125), 2 * two_nibbles(b[:, 66:74]) + 1)


def iq2_s(b):
    high = (b[:, 66:74, None].astype(np.int64) >> np.array([0, 2, 4, 6])) & 3
    index = b[:, 2:34].astype(np.int64) + 256 * high.reshape(-1, 32)
    q = in_groups(grid("IQ2_S")[index]) * in_groups(signs_of_bits(b[:, 34:66]))
    return parts(q, half_at(b, 0) * F32(0.125), 2 * two_nibbles(b[:, 74:82]) + 1)


def iq3_xxs(b):
    words = np.stack([word_at(b, 66 + 4 * g, 4) for g in range(8)], axis=1)
    signs = signs_of_code(np.stack([(words >> (7 * e)) & 127 for e in range(4)], axis=2))
    q = in_groups(grid("IQ3_XXS")[b[:, 2:66]]) * in_groups(signs)
    return parts(q, half_at(b, 0) * F32(0.25), 2 * (words >> 28) + 1)


def iq3_s(b):
    index = b[:, 2:66].astype(np.int64) + 256 * bits_of(b[:, 66:74].astype(np.int64), 8).reshape(-1, 64)
    q = in_groups(grid("IQ3_S")[index]) * in_groups(signs_of_bits(b[:, 74:106]))
    return parts(q, half_at(b, 0), 2 * two_nibbles(b[:, 106:110]).reshape(-1, 8) + 1)


def iq1_m(b):
    nibble = two_nibbles(b[:, 32:48]).reshape(-1, 32)
    index = b[:, :32].astype(np.int64) + 256 * (nibble & 7)
    q = 8 * grid("IQ1_M")[index] + np.where(nibble >> 3, -1, 1)[..., None]
    words = np.stack([word_at(b, 48 + 2 * k, 2) for k in range(4)], axis=1)
    d = sum((words[:, k] >> 12) << (4 * k) for k in range(4)).astype(np.uint16).view(np.float16).astype(F32)
    t = np.stack([(words >> shift) & 7 for shift in (0, 3, 6, 9)], axis=2).reshape(-1, 8, 2)
    return parts(in_groups(q), d * F32(0.125), 2 * t + 1)


DECODERS = {
    **PLAIN_DECODERS,
    "IQ2_XXS": iq2_xxs, "IQ2_XS": iq2_xs, "IQ2_S": iq2_s, "IQ3_XXS": iq3_xxs, "IQ3_S": iq3_s, "IQ1_M": iq1_m,
}


def decode(name: str, blocks) -> Parts:
    """Decode blocks uint8 [n, block bytes] of a format."""
    return DECODERS[name](np.ascontiguousarray(blocks, np.uint8))
