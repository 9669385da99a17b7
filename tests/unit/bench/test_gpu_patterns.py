"""Generated weights are valid and of ordinary size in every format; the same seed gives the same bytes."""

import numpy as np
import pytest

from strata.bench.gpu.patterns import DEVIATION, FLOAT_PATTERNS, generated, pattern_of
from strata.formats.table import FORMATS
from strata.formats.unpack import dequantise

N_BLOCKS = 512
FLOATS = {"BF16": lambda raw: (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32), "F16": lambda raw: raw.view(np.float16), "F32": lambda raw: raw.view(np.float32)}


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_every_block_format_decodes_to_finite_weights_of_the_wanted_size(form):
    values = dequantise(form, generated(pattern_of(form.name), N_BLOCKS * form.block_bytes, 3), N_BLOCKS * form.block_weights)
    assert np.isfinite(values).all()
    assert values.std() == pytest.approx(DEVIATION, rel=0.1)
    assert abs(values.mean()) < 0.6 * DEVIATION
    assert abs(values).max() < 8 * DEVIATION
    assert len(np.unique(generated(pattern_of(form.name), N_BLOCKS * form.block_bytes, 3))) > 100


@pytest.mark.parametrize("name", FLOAT_PATTERNS)
def test_every_float_type_has_finite_weights_of_both_signs(name):
    values = FLOATS[name](generated(pattern_of(name), 4096, 3)).astype(np.float64)
    assert np.isfinite(values).all() and (values < 0).any() and (values > 0).any()
    assert 2**-7 <= abs(values).min() and abs(values).max() < 2**-5


def test_bytes_depend_on_the_seed_and_on_nothing_else():
    pattern = pattern_of("Q2_0")
    whole = generated(pattern, 18 * 64, 5)
    assert np.array_equal(whole[:722], generated(pattern, 722, 5))
    assert not np.array_equal(whole, generated(pattern, 18 * 64, 6))
