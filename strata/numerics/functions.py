"""The transcendental functions of the contract, written once and compiled per executor.

Each is a fixed sequence of correctly rounded float32 operations, so that every executor that has those operations gives
the same bits.  Errors against the true value are within 4 units of 2^-24 relative (`tests/unit/numerics`).
Does not know: vectors, orders, operations of the model.

    exp(x)        +0 below -87.33, +inf above 88.72, NaN stays NaN
    exp_below(x)  exp(x) where x is not above zero, with fewer instructions
    sigmoid(x)    1/(1+exp(-x)); for negative x  e/(1+e) with e = exp(x)
    silu(x)       x * sigmoid(x)
    softplus(x)   x above 20, else  max(x, 0) + log1p(exp(-|x|))
    root_gate(x)  sigmoid(sign(x) * sqrt(max(|x|, 1e-6))), with sign(0) = 0: the gate of the n-gram layer
    key(x)        int32 that orders floats (NaN lowest, -0 equal to +0): the rank key of routers, top-k, argmax and blocks
"""

from types import SimpleNamespace

import numpy as np

ZERO, HALF, ONE, TWO, TWENTY = (np.float32(v) for v in (0.0, 0.5, 1.0, 2.0, 20.0))
EXP_LOWEST = np.float32(-87.33)
EXP_HIGHEST = np.float32(88.72)
INFINITY = np.float32(np.inf)
LOG2_E = np.float32(1.4426950408889634)
MINUS_LN2_HIGH = np.float32(-0.693359375)
"""-ln 2 rounded to 10 bits: products with the exponent are exact."""
MINUS_LN2_LOW = np.float32(2.12194440e-4)
EXP_2, EXP_3, EXP_4, EXP_5, EXP_6, EXP_7 = (
    np.float32(v)
    for v in (0.5, 0.1666666716337204, 0.04166645556688309, 0.008333297446370125, 0.001393454265780747, 0.00019900442566722631)
)
"""exp(r) = 1 + r + r^2 p(r) on |r| <= ln2 / 2: Chebyshev fit of p, degree 5."""
ATANH = tuple(
    np.float32(v)
    for v in (0.3333333432674408, 0.20000006258487701, 0.14285139739513397, 0.11132679879665375, 0.08729005604982376, 0.10405991226434708)
)
ATANH_0, ATANH_1, ATANH_2, ATANH_3, ATANH_4, ATANH_5 = ATANH
"""atanh(s) = s + s^3 p(s^2) on 0 <= s <= 1/3: Chebyshev fit of p, degree 5."""

ROUNDING = np.float32(1.5 * 2**23)
"""Added to a float32 below 2^22 it leaves the nearest integer, ties to even, in the lowest bits."""
EXPONENT_BIAS = np.int32(127)
MANTISSA_BITS = np.int32(23)
MANTISSA_SCALE = np.int32(1 << 23)
SIGN_MASK = np.int32(0x7FFFFFFF)
INFINITY_BITS = np.int32(0x7F800000)
ONE_IN_ROUNDING = np.int32(int(ROUNDING.view(np.int32)) - 127)
"""What the bits of ROUNDING + n have more than the exponent field of 2^n."""
LOWEST_KEY = np.int32(-0x80000000)
LEAST_UNDER_ROOT = np.float32(1e-6)


def build(seam: SimpleNamespace) -> SimpleNamespace:
    """Compile the functions for one executor; returns a namespace with the names of the module's docstring."""
    jit, add, sub, mul, div, fma = seam.jit, seam.add, seam.sub, seam.mul, seam.div, seam.fma
    bits, from_bits, round_even, sqrt = seam.bits, seam.from_bits, seam.round_even, seam.sqrt

    @jit
    def exp(x):
        lifted = x if x > EXP_LOWEST else EXP_LOWEST
        inside = lifted if lifted < EXP_HIGHEST else EXP_HIGHEST
        n = round_even(mul(inside, LOG2_E))
        whole = np.float32(n)
        r = fma(whole, MINUS_LN2_LOW, fma(whole, MINUS_LN2_HIGH, inside))
        p = fma(fma(fma(fma(fma(EXP_7, r, EXP_6), r, EXP_5), r, EXP_4), r, EXP_3), r, EXP_2)
        value = add(fma(mul(r, r), p, r), ONE)
        first = n >> 1
        power_first = from_bits(np.int32((first + EXPONENT_BIAS) * MANTISSA_SCALE))
        power_second = from_bits(np.int32((n - first + EXPONENT_BIAS) * MANTISSA_SCALE))
        scaled = mul(mul(value, power_first), power_second)
        scaled = scaled if x > EXP_LOWEST else ZERO
        scaled = INFINITY if x > EXP_HIGHEST else scaled
        return x if x != x else scaled

    @jit
    def exp_below(x):
        # Where x is below the lowest, what follows is without meaning and not taken; a NaN goes through.  2^n is normal: one product rounds once.
        rounded = add(mul(x, LOG2_E), ROUNDING)
        whole = sub(rounded, ROUNDING)
        r = fma(whole, MINUS_LN2_LOW, fma(whole, MINUS_LN2_HIGH, x))
        p = fma(fma(fma(fma(fma(EXP_7, r, EXP_6), r, EXP_5), r, EXP_4), r, EXP_3), r, EXP_2)
        value = add(fma(mul(r, r), p, r), ONE)
        scaled = mul(value, from_bits(np.int32((bits(rounded) - ONE_IN_ROUNDING) << MANTISSA_BITS)))
        return ZERO if x <= EXP_LOWEST else scaled

    @jit
    def sigmoid(x):
        e = exp(x if x < ZERO else sub(ZERO, x))
        return div(e if x < ZERO else ONE, add(ONE, e))

    @jit
    def silu(x):
        return mul(x, sigmoid(x))

    @jit
    def softplus(x):
        if x > TWENTY:
            return x
        positive = x if x > ZERO else ZERO
        t = exp(sub(ZERO, x if x > ZERO else sub(ZERO, x)))
        s = div(t, add(TWO, t))
        z = mul(s, s)
        p = fma(fma(fma(fma(fma(ATANH_5, z, ATANH_4), z, ATANH_3), z, ATANH_2), z, ATANH_1), z, ATANH_0)
        return add(positive, mul(TWO, fma(mul(s, z), p, s))) if x == x else x

    @jit
    def root_gate(x):
        size = x if x > ZERO else sub(ZERO, x)
        root = sqrt(size if size > LEAST_UNDER_ROOT else LEAST_UNDER_ROOT)
        if x == ZERO:
            root = ZERO
        elif x < ZERO:
            root = sub(ZERO, root)
        return sigmoid(root) if x == x else x

    @jit
    def key(x):
        if x != x:
            return LOWEST_KEY
        b = bits(add(x, ZERO))
        return b if b >= 0 else np.int32(b ^ SIGN_MASK)

    return SimpleNamespace(exp=exp, exp_below=exp_below, sigmoid=sigmoid, silu=silu, softplus=softplus, root_gate=root_gate, key=key)
