"""The table of formats: ids, names and sizes as ggml has them, and what is said about unknown ones."""

import gguf
import pytest

from strata.errors import ModelFileError
from strata.formats import gguf_types  # noqa: F401  (lets gguf know Q2_0)
from strata.formats.contract import GROUP
from strata.formats.table import FLOATS, FORMATS, by_id, by_name


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_a_block_format_has_ggmls_id_and_sizes(form):
    kind = gguf.GGMLQuantizationType[form.name]
    assert form.type_id == kind.value
    assert (form.block_weights, form.block_bytes) == gguf.GGML_QUANT_SIZES[kind]
    assert form.block_weights % GROUP == 0


@pytest.mark.parametrize("form", FLOATS.values(), ids=lambda form: form.name)
def test_a_float_format_has_ggmls_id_and_size(form):
    kind = gguf.GGMLQuantizationType[form.name]
    assert (form.type_id, (1, form.bytes)) == (kind.value, gguf.GGML_QUANT_SIZES[kind])


def test_there_are_seventeen_block_formats_and_three_float_formats():
    assert (len(FORMATS), len(FLOATS)) == (17, 3)
    assert not set(FORMATS) & set(FLOATS)


def test_a_format_is_found_by_id_and_by_name_in_any_case():
    for form in (*FORMATS.values(), *FLOATS.values()):
        assert by_id(form.type_id) is by_name(form.name) is by_name(form.name.lower()) is form


@pytest.mark.parametrize(
    "look_up, asked, quoted", [(by_id, 39, "weight type 39"), (by_name, "Q9_Z", "weight type 'Q9_Z'")]
)
def test_an_unknown_type_is_named_together_with_the_known_ones(look_up, asked, quoted):
    with pytest.raises(ModelFileError, match=f"{quoted}.*Q4_K"):
        look_up(asked)
