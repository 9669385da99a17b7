"""K/V cell formats: halves that saturate, int8 groups and their limits, what is refused."""

import numpy as np
import pytest

from strata.errors import UsageError
from strata.host.cells import CELL_FORMATS, cell_format
from strata.numerics.cpu import kernel
from tests.unit.numerics.bounds import equal_bits
from tests.unit.numerics.document import sequence, vectors
from tests.unit.numerics.stranger.attention import read_back, stored


def round_trip(kv: str, x) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, scales and the values read back, of one vector."""
    form, x = cell_format(kv), np.asarray(x, np.float32)
    store, load = form.store, form.load

    @kernel
    def both(x, codes, scales, out):
        store(x, codes, scales)
        load(codes, scales, out)

    codes, scales, out = np.zeros(len(x), form.code_type), np.zeros(form.n_scales(len(x)), np.uint16), np.empty_like(x)
    both(x, codes, scales, out)
    return codes, scales, out


def group(**at) -> np.ndarray:
    x = np.full(64, 0.5, np.float32)
    for name, value in at.items():
        x[int(name[1:])] = value
    return x


@pytest.mark.parametrize("kv", CELL_FORMATS)
def test_cells_of_all_sizes_of_values_are_the_strangers(kv):
    generator = np.random.default_rng(1)
    for exponent in (-60, -20, -8, 0, 8, 16, 40, 120):
        x = generator.standard_normal(128).astype(np.float32) * np.float32(2.0**exponent)
        codes, scales, values = round_trip(kv, x)
        expected = stored(kv, x)
        assert equal_bits(codes, expected[0]) and equal_bits(scales, expected[1])
        assert equal_bits(values, read_back(kv, *expected))


def test_the_documents_vector():
    ((scale, digits),) = vectors("cells")
    codes, scales, _ = round_trip("int8", sequence(11, 64))
    assert f"{scales[0]:04x}" == scale and codes.tobytes().hex() == digits


def test_halves_saturate_at_65504_and_nan_stays():
    _, _, values = round_trip("f16", [65504, 65520, 1e9, np.inf, -65520, -np.inf, np.nan, 1 / 3])
    assert values[:6].tolist() == [65504] * 4 + [-65504] * 2
    assert np.isnan(values[6]) and values[7] == np.float32(np.float16(1 / 3))


def test_int8_codes_are_relative_to_the_rounded_scale():
    x = group(i0=1.0)
    codes, scales, values = round_trip("int8", x)
    scale = np.float32(scales.view(np.float16)[0])
    assert scale != np.float32(1) / np.float32(127)
    assert codes[0] == round(float(np.float32(1) / scale)) and codes[1] == np.rint(np.float32(0.5) / scale)
    assert equal_bits(values, codes * scale)


def test_int8_halves_go_to_the_even_code():
    x = group(i0=127.0, i1=0.5, i2=1.5, i3=2.5, i4=-2.5, i5=-3.5)
    assert round_trip("int8", x)[0][:6].tolist() == [127, 0, 2, 2, -2, -4]


def test_int8_groups_have_their_own_scales():
    codes, scales, _ = round_trip("int8", np.concatenate((group(), 100 * group())))
    assert codes.tolist() == [127] * 128 and scales[0] != scales[1]


@pytest.mark.parametrize("huge", [1e9, 1.5e14, 3.3e38, np.inf])
def test_int8_saturates_where_its_scale_does(huge):
    """Quotients beyond any integer must not wrap: the largest code, with the sign of the value."""
    codes, scales, values = round_trip("int8", group(i0=huge, i1=-huge))
    assert scales.view(np.float16).tolist() == [65504]
    assert codes[:3].tolist() == [127, -127, 0]
    assert values[:2].tolist() == [127 * 65504, -127 * 65504]


def test_int8_of_nan_is_a_group_of_nan():
    codes, _, values = round_trip("int8", np.concatenate((group(i9=np.nan), group())))
    assert not codes[:64].any() and np.isnan(values[:64]).all() and np.isfinite(values[64:]).all()


def test_int8_of_values_too_small_for_a_scale_is_zero():
    codes, scales, values = round_trip("int8", np.full(64, 1e-7, np.float32))
    assert not codes.any() and not scales.any() and equal_bits(values, np.zeros(64, np.float32))


def test_a_subnormal_scale_clamps_what_it_rounded_away():
    x = np.full(64, 127 * 1.4 * 2.0**-24, np.float32)
    codes, scales, _ = round_trip("int8", x)
    assert scales.tolist() == [1] and codes.tolist() == [127] * 64


def test_f32_cells_keep_every_bit():
    x = np.random.default_rng(2).integers(0, 2**32, 64, np.uint32).view(np.float32)
    assert equal_bits(round_trip("f32", x)[2], x)


def test_bytes_per_vector():
    assert {name: form.bytes_per_vector(256) for name, form in CELL_FORMATS.items()} == {"f32": 1024, "f16": 512, "int8": 264}


def test_int8_refuses_heads_that_its_groups_do_not_fill():
    with pytest.raises(UsageError, match="kv=int8: int8 groups 64 values and a head has 96"):
        cell_format("int8").n_scales(96)


def test_an_unknown_format_is_named_with_those_that_exist():
    with pytest.raises(UsageError, match="kv=q3.*f32, f16, int8"):
        cell_format("q3")
