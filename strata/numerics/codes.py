"""Activation codes: how float32 activations become int8 codes with a float32 scale.

A span of values (32 in the canonical contract) shares one scale: with a = the largest magnitude,

    dx = a / 127,   code = round-half-even(x * (127 / a)),   |code| <= 127

a is found by integer comparison of the magnitudes' bits.  Below 2^-100 the scale is 0 and so are the codes; if a value is
not finite the scale is NaN and the codes are 0, so that the row's results become NaN and nobody else's do.
Source: DESIGN of ggml's Q8_0, with a float32 scale.  Does not know: rows, formats, products.

    magnitude(x) -> int32                  bits of |x|, ordered like the magnitudes
    scale_of(largest) -> (dx, inverse)     from the largest magnitude's bits; inverse = 127 / a or 0
    code_of(x, inverse) -> int8 range int32
"""

from types import SimpleNamespace

import numpy as np

from strata.numerics.functions import INFINITY_BITS, SIGN_MASK, ZERO

SMALLEST_BITS = np.int32((127 - 100) << 23)
"""Bits of 2^-100, below which a span codes as zeros."""
LARGEST_CODE = np.float32(127.0)
NOT_A_NUMBER = np.float32(np.nan)


def build(seam: SimpleNamespace) -> SimpleNamespace:
    """Compile the coding helpers for one executor."""
    jit, mul, div, bits, from_bits, round_even = seam.jit, seam.mul, seam.div, seam.bits, seam.from_bits, seam.round_even

    @jit
    def magnitude(x):
        return np.int32(bits(x) & SIGN_MASK)

    @jit
    def scale_of(largest):
        if largest >= INFINITY_BITS:
            return NOT_A_NUMBER, ZERO
        if largest < SMALLEST_BITS:
            return ZERO, ZERO
        a = from_bits(largest)
        return div(a, LARGEST_CODE), div(LARGEST_CODE, a)

    @jit
    def code_of(x, inverse):
        return round_even(mul(x, inverse)) if inverse != ZERO else np.int32(0)

    return SimpleNamespace(magnitude=magnitude, scale_of=scale_of, code_of=code_of)
