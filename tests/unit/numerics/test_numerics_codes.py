"""Activation codes: scale, rounding, the limits at 127, 2^-100 and at what is not finite."""

import numpy as np
import pytest

from strata.cpu_pool.team import Team
from strata.host.coding import encode
from tests.unit.numerics import compiled
from tests.unit.numerics.bounds import equal_bits
from tests.unit.numerics.stranger.sums import codes as plain_codes

SMALLEST = np.float32(2.0**-100)
CONTROL = Team(1).control


def coded(x, span: int = 32) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.ascontiguousarray(x, np.float32).reshape(-1, np.shape(x)[-1])
    rows, n = x.shape
    codes, scales, sums = np.empty((rows, n), np.int8), np.empty((rows, n // 32), np.float32), np.empty((rows, n // 32), np.int32)
    encode(CONTROL, x, np.full(rows, span, np.int32), codes, scales, sums)
    return codes, scales, sums


def group(**at) -> np.ndarray:
    """32 values, 0.25 except those named: group(i3=2.0)."""
    x = np.full(32, 0.25, np.float32)
    for name, value in at.items():
        x[int(name[1:])] = value
    return x


@pytest.mark.parametrize("span", [32, 64, 256])
def test_codes_scales_and_sums_are_the_strangers(span):
    generator = np.random.default_rng(1)
    x = (generator.standard_normal((50, 320)) * 2.0 ** generator.integers(-40, 40, (50, 320))).astype(np.float32)
    x[3, 40], x[7, 100], x[9, 319], x[11] = np.nan, np.inf, -np.inf, 0
    assert all(equal_bits(a, b) for a, b in zip(coded(x, span), plain_codes(x, span), strict=True))


def test_the_largest_value_has_code_127_whatever_it_is():
    generator = np.random.default_rng(2)
    largest = np.concatenate((np.exp(generator.uniform(-69, 88, 3000)), [2.0**-100, 3.4e38])).astype(np.float32)
    x = np.zeros((len(largest), 32), np.float32)
    x[:, 5], x[:, 9] = largest, -largest
    codes, scales, sums = coded(x)
    assert (codes[:, 5] == 127).all() and (codes[:, 9] == -127).all() and not sums.any()
    assert equal_bits(scales[:, 0], largest / np.float32(127))


def test_no_code_is_minus_128():
    x = np.random.default_rng(3).integers(0, 2**32, (2000, 32), np.uint32).view(np.float32)
    assert coded(x)[0].min() == -127


def test_halves_go_to_the_even_code():
    x = group(i0=127.0, i1=0.5, i2=1.5, i3=2.5, i4=-0.5, i5=-1.5, i6=-2.5, i7=126.5, i8=-125.5)
    assert coded(x)[0][0, :9].tolist() == [127, 0, 2, 2, 0, -2, -2, 126, -126]


def test_below_two_to_the_minus_100_all_is_zero():
    below = np.nextafter(SMALLEST, np.float32(0))
    codes, scales, sums = coded(np.stack([np.full(32, SMALLEST), np.full(32, below), np.zeros(32), np.full(32, -below)]))
    assert codes[0].tolist() == [127] * 32 and scales[0, 0] == SMALLEST / np.float32(127) > 0 and sums[0, 0] == 127 * 32
    assert not codes[1:].any() and not sums[1:].any()
    assert equal_bits(scales[1:], np.zeros((3, 1), np.float32))


def test_tiny_values_beside_a_large_one_code_as_zero():
    codes, scales, _ = coded(group(i0=1e30, i1=1e-44, i2=-1e-44))
    assert codes[0].tolist() == [127] + [0] * 31 and scales[0, 0] == np.float32(1e30) / np.float32(127)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_gives_a_scale_of_nan_and_zero_codes(wrong):
    x = np.concatenate((group(), group(i31=wrong), group()))
    codes, scales, sums = coded(x)
    assert np.isnan(scales[0]).tolist() == [False, True, False]
    assert not codes[0, 32:64].any() and sums[0].tolist() == [127 * 32, 0, 127 * 32]


def test_a_negative_largest_value_gives_a_positive_scale():
    _, scales, _ = coded(group(i4=-8.0))
    assert scales[0, 0] == np.float32(8) / np.float32(127)


def test_a_wide_span_shares_one_scale_and_keeps_sums_per_group():
    x = np.concatenate((group(i0=1.0), group(i0=2.0), group(i0=4.0)))
    codes, scales, sums = coded(x, span=256)
    assert equal_bits(scales[0], np.full(3, np.float32(4) / np.float32(127)))
    assert sums[0].tolist() == [int(codes[0, 32 * g : 32 * g + 32].sum()) for g in range(3)]
    assert not np.array_equal(codes, coded(x)[0])


def test_the_last_span_may_be_shorter():
    x = np.random.default_rng(4).standard_normal((3, 320)).astype(np.float32)
    _, scales, _ = coded(x, span=256)
    assert (scales[:, :8] == scales[:, :1]).all() and (scales[:, 8] == scales[:, 9]).all()
    assert (scales[:, 8] != scales[:, 0]).any()


def test_codes_lose_at_most_half_a_step():
    x = np.random.default_rng(5).standard_normal((200, 32)).astype(np.float32)
    codes, scales, _ = coded(x)
    assert np.abs(codes * scales.astype(np.float64) - x).max(axis=1).max() <= 0.5001 * scales.max()
    assert (np.abs(codes * scales.astype(np.float64) - x).max(axis=1) <= 0.5001 * scales[:, 0]).all()


def test_the_scale_is_found_by_comparing_magnitudes_as_integers():
    x = np.array([-0.0, 0.0, -1.0, 1.0, -np.inf, np.nan], np.float32)
    assert compiled.values_of(compiled.MAGNITUDE, np.int32, x)[:5].tolist() == [0, 0, 0x3F800000, 0x3F800000, 0x7F800000]
    assert compiled.values_of(compiled.MAGNITUDE, np.int32, x)[5] > 0x7F800000
