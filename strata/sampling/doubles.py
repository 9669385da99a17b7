"""Exponential and logarithm in double precision that do not depend on a platform's mathematics library.

Both are fixed sequences of additions, multiplications and divisions that IEEE 754 rounds exactly (to nearest, ties to even;
none is contracted), so that every machine gives the same bits.  Errors against the true value are below 1.2 and 3 units in
the last place (`tests/unit/sampling`).

    exp(x)   x = n ln2 + r with n = round-half-even(x / ln2); r = (x - n LN2_HIGH) - n LN2_LOW, where n LN2_HIGH is exact;
             p = the Taylor polynomial of degree 13 of exp at r, by Horner; result p * 2^n (in two factors, so that
             results below the normal range round once).  Below -745.2: +0.  Above 709.78: +inf.  NaN stays.
    log(x)   x = m 2^e with sqrt(1/2) <= m < sqrt(2); s = (m - 1) / (m + 1), z = s s;
             log m = 2 s (1 + z/3 + z^2/5 + ... + z^11/23), by Horner; result e LN2_HIGH + (log m + e LN2_LOW).
             0 gives -inf, below 0 and NaN give NaN, +inf stays.

Does not know: logits.
"""

import numpy as np

from strata.numerics.cpu import jit

ZERO, ONE, TWO, HALF = (np.float64(v) for v in (0.0, 1.0, 2.0, 0.5))
INFINITY, NOT_A_NUMBER = np.float64(np.inf), np.float64(np.nan)
LN2_HIGH = np.float64(6.93147180369123816490e-01)
"""ln 2 rounded to 32 bits: products with an exponent are exact."""
LN2_LOW = np.float64(1.90821492927058770002e-10)
INVERSE_LN2 = np.float64(1.44269504088896338700)
HIGHEST, LOWEST = np.float64(709.78), np.float64(-745.2)
ROUNDER = np.float64(6755399441055744.0)
"""1.5 * 2^52: adding and subtracting it rounds |x| < 2^51 to a whole number, halves to even."""
SMALLEST_EXPONENT = -1074
POWERS = np.ldexp(ONE, np.arange(SMALLEST_EXPONENT, 1024))
"""2^e at index e + 1074, exact."""
TAYLOR = np.array([1.0 / f for f in (1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600, 6227020800)])
"""1/k!, each rounded once."""
ODD = np.array([1.0 / (2 * k + 1) for k in range(12)])
"""1/(2k+1), each rounded once."""
ROOT_HALF = np.float64(0.70710678118654752440)
SUBNORMAL_BOUND = np.float64(2.0**-1022)
LIFT = np.float64(2.0**54)
MANTISSA_BITS, MANTISSA_MASK = np.int64(52), np.int64((1 << 52) - 1)
ONE_HALF_BITS = np.int64(1022 << 52)


@jit
def exp(x):
    """exp of one float64."""
    if x != x:
        return x
    if x > HIGHEST:
        return INFINITY
    if x < LOWEST:
        return ZERO
    whole = (x * INVERSE_LN2 + ROUNDER) - ROUNDER
    r = (x - whole * LN2_HIGH) - whole * LN2_LOW
    value = TAYLOR[13]
    for k in range(12, -1, -1):
        value = value * r + TAYLOR[k]
    n = np.int64(whole)
    first = n // 2
    return value * POWERS[first - SMALLEST_EXPONENT] * POWERS[n - first - SMALLEST_EXPONENT]


@jit
def log(x):
    """Natural logarithm of one float64."""
    if x != x or x < ZERO:
        return NOT_A_NUMBER
    if x == ZERO:
        return -INFINITY
    if x == INFINITY:
        return x
    exponent = np.int64(-1022)
    if x < SUBNORMAL_BOUND:
        x, exponent = x * LIFT, np.int64(-1076)
    pattern = np.float64(x).view(np.int64)
    exponent += pattern >> MANTISSA_BITS
    m = np.int64((pattern & MANTISSA_MASK) | ONE_HALF_BITS).view(np.float64)
    if m < ROOT_HALF:
        m, exponent = m * TWO, exponent - 1
    s = (m - ONE) / (m + ONE)
    z = s * s
    value = ODD[11]
    for k in range(10, -1, -1):
        value = value * z + ODD[k]
    e = np.float64(exponent)
    return e * LN2_HIGH + (TWO * s * value + e * LN2_LOW)
