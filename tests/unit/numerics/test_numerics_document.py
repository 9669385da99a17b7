"""docs/NUMERICS.md against the code: constants, tables and test vectors, for the stranger's and the engine's arithmetic."""

import fnmatch
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from strata.formats.table import FORMATS
from strata.numerics import codes, functions, hashing, rotary, rounding
from strata.numerics.rotary import fingerprint, rotary_table
from tests.unit.numerics import compiled
from tests.unit.numerics.bounds import FUNCTION_UNITS
from tests.unit.numerics.document import (
    constants, double_constants, float32_of, format_table, hex_of, sequence, text, vectors,
)
from tests.unit.numerics.stranger import functions as plain
from tests.unit.numerics.stranger.arithmetic import fma, saturated_half
from tests.unit.numerics.stranger.rotary import table_row
from tests.unit.numerics.stranger.sums import codes as plain_codes
from tests.unit.numerics.stranger.sums import dot, inverse_l2, inverse_rms
from tests.unit.numerics.stranger.tensors import Tensors

FIXTURE = Path(__file__).resolve().parents[3] / "fixtures" / "strata-mini-mix"


def floats(words) -> np.ndarray:
    return np.array([np.float32(np.nan) if word == "nan" else float32_of(word) for word in words], np.float32)


def column(rows, i) -> list[str]:
    return [row[i] for row in rows]


def test_every_float_constant_of_the_code_is_in_the_document():
    for name, value in constants().items():
        assert hex_of(getattr(functions, name)) == hex_of(value), name
    in_code = {name for name in vars(functions) if re.fullmatch(r"(EXP|ATANH|LOG2|MINUS)_\w+", name)}
    assert in_code == set(constants())


def test_every_rotary_constant_of_the_code_is_in_the_document():
    in_code = {"TWO_OVER_PI": rotary.TWO_OVER_PI}
    for prefix, values in (("PI", rotary.HALF_PI_PARTS), ("S", rotary.SINE), ("C", rotary.COSINE)):
        in_code |= {f"{prefix}_{i}": value for i, value in enumerate(values)}
    assert double_constants() == in_code


def test_the_format_table_is_that_of_the_code():
    documented = format_table()
    assert set(documented) == {form.name for form in FORMATS.values()}
    for form in FORMATS.values():
        row = documented[form.name]
        figures = tuple(int(row[heading]) for heading in ("id", "weights", "bytes", "largest I"))
        assert figures == (form.type_id, form.block_weights, form.block_bytes, form.largest_product)
        assert row["family"] == ("offset" if form.has_offset else "split" if form.split_scales else "plain")


def test_thresholds_and_hash_constants_of_the_code_are_in_the_document():
    whole = text()
    assert f"{int(codes.SMALLEST_BITS):08x} (2^-100)" in whole and f"{int(functions.INFINITY_BITS):08x} (a value is" in whole
    for constant in (hashing.GOLDEN, *hashing.STRIDES, hashing.FIRST, hashing.SECOND):
        assert f"{int(constant):016x}" in whole


def test_every_nan_hashes_as_the_documented_one_and_zeros_differ():
    rows = floats(["7fc00000", "ffc00000", "7f800001", "00000000", "80000000"])[:, None]
    hashes = list(map(hashing.hex_of, hashing.row_hashes(rows)))
    assert "folds every NaN to 7fc00000" in text()
    assert hashes[0] == hashes[1] == hashes[2] and len(set(hashes[2:])) == 3


def test_the_modes_are_those_of_the_code():
    rows = dict(re.findall(r"^\| `(canonical|device|grouped|wide)` \|.*\| `(\w+)` \|$", text(), re.MULTILINE))
    assert rows == {mode.name: mode.kv_default for mode in rounding.MODES.values()}


def test_the_error_table_is_what_the_bounds_say():
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| \w{8} \| ([\d.]+) \| \w{8} \|$", text(), re.MULTILINE)
    assert {name for name, _, _ in rows} == set(FUNCTION_UNITS)
    for name, below, above in rows:
        assert 0.95 * FUNCTION_UNITS[name] < max(float(below), float(above)) <= FUNCTION_UNITS[name]


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu", "softplus"])
def test_function_vectors_hold_for_both_executors(name):
    rows = vectors("functions")
    x, expected = floats(column(rows, 0)), column(rows, 1 + ["exp", "sigmoid", "silu", "softplus"].index(name))
    assert list(map(hex_of, compiled.floats_of(compiled.FUNCTIONS[name], x))) == expected
    assert list(map(hex_of, getattr(plain, name)(x))) == expected


def test_key_vectors_hold_for_both_executors():
    rows = vectors("key")
    x, expected = floats(column(rows, 0)), [int(word, 16) for word in column(rows, 1)]
    assert compiled.values_of(compiled.KEY, np.int32, x).view(np.uint32).tolist() == expected
    assert [int(key) % 2**32 for key in plain.key(x)] == expected


def test_half_vectors_hold_and_saturate():
    rows = [row for row in vectors("half") if row[0] != "nan"]
    x, expected = floats(column(rows, 0)), [int(word, 16) for word in column(rows, 1)]
    assert saturated_half(x).tolist() == expected
    inside = np.abs(x) <= 65504
    assert compiled.values_of(compiled.TO_HALF, np.uint16, x[inside]).tolist() == [w for w, i in zip(expected, inside, strict=True) if i]


def test_fma_vectors_hold_for_both_executors_and_differ_from_two_roundings():
    rows = vectors("fma")
    a, b, c = (floats(column(rows, i)) for i in range(3))
    assert list(map(hex_of, compiled.floats_of(compiled.fused, a, b, c))) == column(rows, 3)
    assert list(map(hex_of, fma(a, b, c))) == column(rows, 3)
    assert list(map(hex_of, compiled.floats_of(compiled.multiplied_then_added, a, b, c))) == column(rows, 4)
    assert sum(row[3] != row[4] for row in rows) >= 3


def test_sum_vectors_hold_and_one_chain_gives_other_bits():
    for n, n_lanes, expected, chain in vectors("sums"):
        a, b = sequence(1, int(n)), sequence(2, int(n))
        assert hex_of(dot(a, b, int(n_lanes))) == expected
        assert hex_of(dot(a, b, 1)) == chain != expected


def test_norm_vectors_hold():
    for n, rms, length in vectors("norms"):
        x, eps = sequence(3, int(n)), float32_of("358637bd")
        assert (hex_of(inverse_rms(x, eps)), hex_of(inverse_l2(x, eps))) == (rms, length)


def test_rotary_vectors_hold_for_both_executors():
    table = rotary_table(1e6, 16, 262144)
    for position, *words in vectors("rotary"):
        assert list(map(hex_of, table[int(position)].ravel())) == words
        assert list(map(hex_of, table_row(1e6, 16, int(position)).ravel())) == words


def test_the_tables_hashes_are_those_of_the_document():
    for base, n_dims, n_positions, expected in vectors("tables"):
        table = rotary_table(float(base), int(n_dims), int(n_positions))
        assert fingerprint(table) == expected
        table[7, 1, 2] = np.nextafter(table[7, 1, 2], np.float32(2))
        assert fingerprint(table) != expected


def test_code_vectors_hold_for_both_executors():
    ((dx, inverse, total, digits),) = vectors("codes")
    x, expected = sequence(5, 32), np.frombuffer(bytes.fromhex(digits), np.int8)
    (codes_of_x,), ((scale,),), ((sum_of_codes,),) = plain_codes(x[None])
    assert (hex_of(scale), int(sum_of_codes)) == (dx, int(total)) and codes_of_x.tolist() == expected.tolist()
    found = np.empty((1, 2), np.float32)
    compiled.scales(compiled.values_of(compiled.MAGNITUDE, np.int32, x).max(keepdims=True), found)
    assert [hex_of(value) for value in found[0]] == [dx, inverse]
    assert compiled.values_of(compiled.codes, np.int32, x, np.full(32, found[0, 1])).tolist() == expected.tolist()


def test_the_row_hash_vector_holds():
    (expected,) = vectors("row-hash")[0]
    assert hashing.hex_of(hashing.row_hashes(sequence(12, 100)[None])[0]) == expected


def test_the_sequence_is_what_the_document_says():
    exact = Fraction((37 * 5 + 3) % 193 - 96, 97)
    assert sequence(3, 6)[5] == np.float32(float(exact))


def test_missing_vectors_are_an_error():
    with pytest.raises(LookupError, match="vectors=nothing"):
        vectors("nothing")


def test_every_name_of_a_tensor_or_key_in_the_document_is_one_of_the_model():
    rows = re.search(r"^\| here \|.*?\n\n", text(), re.MULTILINE | re.DOTALL).group()
    names = re.findall(r"`([\w.*]+)`", "".join(row.split("|")[2] for row in rows.splitlines() if row))
    tensors = Tensors(sorted(FIXTURE.glob("*.gguf")))
    known = {re.sub(r"^blk\.\d+\.|\.weight$", "", name) for name in tensors.names()} | set(tensors.keys)
    assert len(names) > 50 and [name for name in names if not fnmatch.filter(known, name)] == []


def test_every_block_of_vectors_is_read_by_a_test():
    names = re.findall(r"^```vectors ([\w-]+) ", text(), re.MULTILINE)
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].glob("*/test_*.py"))
    assert len(names) == len(set(names)) >= 15
    assert [name for name in names if f'vectors("{name}")' not in tests] == []
