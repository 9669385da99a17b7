"""Rotary tables against 50-digit decimals, and against the host's own mathematics library not at all."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from strata.numerics.rotary import fingerprint, inverse_frequencies, rotary_table, sine_cosine
from tests.unit.numerics.bounds import ROTARY_UNITS_IN_THE_LAST_PLACE, equal_bits
from tests.unit.numerics.stranger.rotary import table_row

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")
GEOMETRIES = [(1e6, 16), (1e7, 64), (1e4, 8)]
POSITIONS = (0, 1, 2, 3, 5, 11, 100, 1023, 1024, 4095, 65535, 131071, 262143)


def exact_sine_cosine(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Taylor series after reduction by 2 pi, good to 40 digits for angles below 10^7."""
    with localcontext() as context:
        context.prec = 80
        x = angle - (angle / (2 * PI)).to_integral_value() * 2 * PI
        sums, term = [Decimal(0), Decimal(0)], Decimal(1)
        for n in range(1, 60):
            sums[(n - 1) % 2] += term
            term = term * x / n * (-1 if n % 2 == 0 else 1)
        return sums[1], sums[0]


def error_in_last_places(value: np.float32, true: Decimal) -> float:
    spacing = float(np.spacing(np.float32(abs(float(true)))))
    return abs(float(Decimal(float(value)) - true)) / spacing


@pytest.mark.parametrize(("base", "n_dims"), GEOMETRIES)
def test_every_entry_is_the_true_value_rounded(base, n_dims):
    table = rotary_table(base, n_dims, POSITIONS[-1] + 1)
    worst = 0.0
    for position in POSITIONS:
        for pair in range(n_dims // 2):
            with localcontext() as context:
                context.prec = 60
                angle = Decimal(position) * (Decimal(base).ln() * (-2 * pair) / n_dims).exp()
            sine, cosine = exact_sine_cosine(angle)
            for value, true in ((table[position, 0, pair], cosine), (table[position, 1, pair], sine)):
                worst = max(worst, error_in_last_places(value, true) if true else float(value != 0))
    assert worst <= ROTARY_UNITS_IN_THE_LAST_PLACE


def test_the_decimal_sine_is_right_where_it_is_known():
    with localcontext() as context:
        context.prec = 60
        sine, cosine = exact_sine_cosine(PI / 6)
        assert abs(sine - Decimal("0.5")) < Decimal("1e-40")
        assert abs(cosine * cosine - Decimal("0.75")) < Decimal("1e-40")


def test_angles_at_multiples_of_half_pi_fall_into_the_right_quadrant():
    angles = np.array([k * np.pi / 2 + step for k in range(9) for step in (-1e-9, 1e-9)])
    sine, cosine = sine_cosine(angles)
    assert np.abs(sine - np.sin(angles)).max() < 1e-15 and np.abs(cosine - np.cos(angles)).max() < 1e-15


@pytest.mark.parametrize(("base", "n_dims"), GEOMETRIES)
def test_the_stranger_computes_the_same_rows(base, n_dims):
    table = rotary_table(base, n_dims, 4096)
    for position in (0, 1, 7, 1000, 4095):
        assert equal_bits(table[position], table_row(base, n_dims, position))


def test_a_longer_table_begins_with_the_shorter_one():
    assert equal_bits(rotary_table(1e6, 16, 4096)[:100], rotary_table(1e6, 16, 100))


def test_frequencies_are_the_nearest_float64():
    for pair, value in enumerate(inverse_frequencies(1e6, 16)):
        with localcontext() as context:
            context.prec = 60
            true = (Decimal(1000000).ln() * (-2 * pair) / 16).exp()
            neighbours = (np.nextafter(value, 0), np.nextafter(value, 2))
            assert all(abs(Decimal(value) - true) <= abs(Decimal(float(n)) - true) for n in neighbours)


def test_the_hash_depends_on_every_part_of_the_geometry():
    hashes = {fingerprint(rotary_table(*geometry)) for geometry in ((1e6, 16, 64), (1e7, 16, 64), (1e6, 32, 64), (1e6, 16, 65))}
    assert len(hashes) == 4
