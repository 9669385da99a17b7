"""Random stored weights that are valid in every format: which bits of a block are random, and what the others are.

A block is seen as 16-bit halves.  Half `i` of it is  (random & kept[i]) | fixed[i]:  codes and integer sub-scales are random,
stored fp16 scales are a constant with a few random low bits.  The constant is such that decoded weights have about the wanted
standard deviation.  The random bits are SplitMix64's: word w of a tensor is mix(seed + (w + 1) * GOLDEN), four halves, the
low one first.  `generated` is the host's twin of the card's kernel.  Does not know: tensors, cards.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from strata.formats.contract import WeightFormat
from strata.formats.table import by_name
from strata.formats.unpack import dequantise

DEVIATION = 1 / 64
"""Wanted standard deviation of decoded weights: products of 2,560 columns then neither vanish nor grow."""
SCALE_AT = {"Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q3_K": (108,), "Q6_K": (208,)}
"""Byte offsets of a block's fp16 numbers where it is not (0,): the scale, then what takes the mean away."""
OFFSET_RATIO = {"Q5_1": -15.5, "Q4_K": 7.5, "Q5_K": 15.5}
"""The second fp16 number over the first: with it, random codes have the mean 0."""
SCATTERED = {"IQ1_M": (48, 50, 52, 54)}
"""Formats whose scale lies in the upper four bits of four halves, lowest first."""
LOW_BITS, LEAST_VARIED = 0x1F, 0x100
"""Random low bits of a scale, where it is large enough that they change little."""
FLOAT_PATTERNS = {"BF16": ((0x80FF,), (0x3C00,)), "F16": ((0x87FF,), (0x2000,)), "F32": ((0xFFFF, 0x80FF), (0, 0x3C00))}
"""Sign and fraction random, magnitudes from 2^-7 to 2^-5 (F16: to 2^-6)."""
SAMPLE_BLOCKS = 2048
GOLDEN, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """kept, fixed int32 [halves of a block]."""

    kept: np.ndarray
    fixed: np.ndarray


@cache
def pattern_of(type_name: str) -> Pattern:
    """Return the pattern of a weight type."""
    if type_name in FLOAT_PATTERNS:
        return Pattern(*(np.array(values, np.int32) for values in FLOAT_PATTERNS[type_name]))
    form = by_name(type_name)
    unscaled = dequantise(form, generated(_with_scale(form, 1.0), SAMPLE_BLOCKS * form.block_bytes, 1), SAMPLE_BLOCKS * form.block_weights)
    return _with_scale(form, DEVIATION / float(unscaled.std()))


def _with_scale(form: WeightFormat, scale: float) -> Pattern:
    """Return a format's pattern with a scale; one below fp16's numbers becomes its least."""
    n_halves = form.block_bytes // 2
    kept, fixed = np.full(n_halves, 0xFFFF, np.int32), np.zeros(n_halves, np.int32)
    if form.name in SCATTERED:
        bits = _half_bits(scale)
        for k, at in enumerate(SCATTERED[form.name]):
            kept[at // 2], fixed[at // 2] = 0x0FFF, (bits >> 4 * k & 0xF) << 12
        return Pattern(kept, fixed)
    for at, factor in zip(SCALE_AT.get(form.name, (0,)), (1.0, OFFSET_RATIO.get(form.name, 1.0)), strict=False):
        bits = _half_bits(scale * factor)
        varied = LOW_BITS if bits & 0x7FFF >= LEAST_VARIED else 0
        kept[at // 2], fixed[at // 2] = varied, bits & ~varied
    return Pattern(kept, fixed)


def _half_bits(value: float) -> int:
    bits = int(np.float16(value).view(np.uint16))
    return bits if bits & 0x7FFF else bits | 1


def generated(pattern: Pattern, n_bytes: int, seed: int) -> np.ndarray:
    """Return uint8 [n_bytes], as the card's kernel fills them; n_bytes is even, 0 <= seed < 2^63."""
    n_halves = n_bytes // 2
    with np.errstate(over="ignore"):
        x = np.uint64(seed) + np.arange(1, (n_halves + 3) // 4 + 1, dtype=np.uint64) * GOLDEN
        x = (x ^ (x >> np.uint64(30))) * FIRST
        x = (x ^ (x >> np.uint64(27))) * SECOND
        x ^= x >> np.uint64(31)
    halves = x.view(np.uint16)[:n_halves].astype(np.int32)
    at = np.arange(n_halves) % len(pattern.kept)
    return ((halves & pattern.kept[at]) | pattern.fixed[at]).astype(np.uint16).view(np.uint8)
