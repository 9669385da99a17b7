"""The CPU's rounded operations: fused where fused, two roundings where not, conversions, subnormal numbers."""

from fractions import Fraction

import numba
import numpy as np
import pytest

from strata.numerics import cpu
from tests.unit.numerics import compiled
from tests.unit.numerics.bounds import equal_bits
from tests.unit.numerics.stranger.arithmetic import fma, round_fraction, saturated_half


def triples(n: int, seed: int) -> tuple[np.ndarray, ...]:
    """Random operands whose sum cancels about a third of the time, some products subnormal."""
    generator = np.random.default_rng(seed)
    a, b = (generator.standard_normal(n).astype(np.float32) * np.float32(2.0) ** generator.integers(-70, 20, n) for _ in range(2))
    c = np.where(generator.random(n) < 0.3, -(a * b), generator.standard_normal(n)).astype(np.float32)
    return a.astype(np.float32), b.astype(np.float32), c


def exact(a, b, c) -> Fraction:
    return Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))


def test_fma_is_rounded_once():
    a, b, c = triples(3000, seed=1)
    expected = [round_fraction(value) if (value := exact(*row)) else np.float32(0) for row in zip(a, b, c, strict=True)]
    found = compiled.floats_of(compiled.fused, a, b, c)
    nonzero = found != 0
    assert nonzero.sum() > 2000
    assert equal_bits(found[nonzero], np.array(expected, np.float32)[nonzero])
    assert not np.array(expected)[~nonzero].any()


def test_fma_is_rounded_once_among_subnormal_results():
    generator = np.random.default_rng(2)
    a = generator.standard_normal(500).astype(np.float32) * np.float32(2.0**-70)
    b = generator.standard_normal(500).astype(np.float32) * np.float32(2.0**-66)
    c = generator.integers(1, 1 << 20, 500).astype(np.uint32).view(np.float32)
    expected = np.array([round_fraction(exact(*row)) for row in zip(a, b, c, strict=True)], np.float32)
    found = compiled.floats_of(compiled.fused, a, b, c)
    assert equal_bits(found, expected) and (np.abs(found) < 2.0**-126).sum() > 400


def test_the_strangers_fma_is_rounded_once():
    """Its float64 trick against exact fractions, and against the CPU's instruction on many more operands."""
    for row in zip(*triples(1500, seed=3), strict=True):
        value = exact(*row)
        assert fma(*row) == (round_fraction(value) if value else 0)
    operands = triples(200_000, seed=4)
    assert equal_bits(fma(*operands), compiled.floats_of(compiled.fused, *operands))


def test_fma_near_the_largest_float_and_with_infinities():
    largest = np.finfo(np.float32).max
    a = np.array([largest, largest, np.inf, np.inf, 0, -0.0], np.float32)
    b = np.array([1, 2, 1, 0, np.inf, 1], np.float32)
    c = np.array([largest * 2.0**-26, -largest, -1, 1, 1, -0.0], np.float32)
    found = compiled.floats_of(compiled.fused, a, b, c)
    assert equal_bits(found, np.array([largest, largest, np.inf, np.nan, np.nan, -0.0], np.float32))
    assert equal_bits(fma(a, b, c), found)


@pytest.mark.parametrize("run", [compiled.multiplied_then_added, compiled.written_with_operators], ids=["mul and add", "operators"])
def test_a_product_and_a_sum_are_never_contracted(run):
    a, b, c = triples(20_000, seed=5)
    found = compiled.floats_of(run, a, b, c)
    assert equal_bits(found, a * b + c)
    assert not equal_bits(found, compiled.floats_of(compiled.fused, a, b, c))


def test_fast_mathematics_would_contract():
    """The negative control: the same source under `fastmath` has other bits, so the test above can fail."""

    @numba.njit(fastmath=True, error_model="numpy")
    def contracted(a, b, c, out):
        for i in range(a.shape[0]):
            out[i] = a[i] * b[i] + c[i]

    a, b, c = triples(20_000, seed=5)
    assert not equal_bits(compiled.floats_of(contracted, a, b, c), a * b + c)


def test_no_kernel_asks_for_fast_mathematics():
    for run in (compiled.EXP, compiled.fused, compiled.multiplied_then_added):
        assert not run.targetoptions.get("fastmath")


def test_bare_operators_on_float32_stay_float32():
    a, b, c = triples(1000, seed=6)
    assert equal_bits(compiled.floats_of(compiled.written_with_operators, a, b, c), a * b + c)


def test_every_half_widens_as_numpy_widens_it():
    patterns = np.arange(1 << 16, dtype=np.uint32)
    found = compiled.values_of(compiled.HALF, np.float32, patterns)
    assert equal_bits(found, patterns.astype(np.uint16).view(np.float16).astype(np.float32))


def test_floats_round_to_halves_as_numpy_rounds_them():
    generator = np.random.default_rng(7)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[1:] + halves[:-1]) / np.float32(2)
    random = generator.integers(0, 2**32, 100_000, np.uint32).view(np.float32)
    edges = np.array([np.inf, -np.inf, 65519.996, 65520.0], np.float32)
    x = np.concatenate((halves, ties, -ties, random[~np.isnan(random)], edges))
    with np.errstate(over="ignore"):
        assert np.array_equal(compiled.values_of(compiled.TO_HALF, np.uint16, x), x.astype(np.float16).view(np.uint16))


def test_nan_stays_nan_as_a_half():
    assert np.isnan(compiled.values_of(compiled.TO_HALF, np.uint16, np.array([np.nan], np.float32)).view(np.float16)[0])
    assert np.isnan(saturated_half(np.float32(np.nan)).view(np.float16))


def test_a_brain_float_is_the_upper_half_of_a_float():
    patterns = np.arange(1 << 16, dtype=np.uint32)
    assert equal_bits(compiled.values_of(compiled.BRAIN, np.float32, patterns), (patterns << 16).view(np.float32))


def test_integers_round_halves_to_even():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 126.5, 127.49999, -126.5, 8388607.5, 0, -0.0], np.float32)
    assert compiled.values_of(compiled.ROUND_EVEN, np.int32, x).tolist() == [0, 2, 2, 0, -2, -2, 0, 126, 127, -126, 8388608, 0, 0]


def test_division_and_root_are_correctly_rounded():
    @cpu.kernel
    def quotients_and_roots(a, b, quotient, root):
        for i in range(a.shape[0]):
            quotient[i], root[i] = cpu.div(a[i], b[i]), cpu.sqrt(a[i])

    generator = np.random.default_rng(8)
    a, b = (np.exp(generator.uniform(-60, 60, 2000)).astype(np.float32) for _ in range(2))
    quotient, root = np.empty_like(a), np.empty_like(a)
    quotients_and_roots(a, b, quotient, root)
    assert equal_bits(quotient, np.array([round_fraction(Fraction(float(x)) / Fraction(float(y))) for x, y in zip(a, b, strict=True)]))
    assert equal_bits(root, np.sqrt(a.astype(np.float64)).astype(np.float32))


def test_subnormal_products_and_operands_are_kept():
    tiny, one, zero = np.array([1e-42], np.float32), np.array([1.0], np.float32), np.array([0.0], np.float32)
    half = np.array([0.5], np.float32)
    assert compiled.floats_of(compiled.multiplied_then_added, tiny, one, zero)[0] == tiny[0]
    assert compiled.floats_of(compiled.fused, tiny, half, zero)[0] == np.float32(5e-43) != 0
