"""The fingerprint of a live function: equal for equal code, different for anything that machine code would hold."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from numba import njit

from strata.numerics.cpu import SEAM, jit
from strata.numerics.fingerprint import fingerprint

OWN = frozenset({__name__.partition(".")[0], "strata"})
SCALE = np.float32(2)


@dataclass(frozen=True)
class Setting:
    width: int


def build(seam, constant, table):
    lookup = seam.table(table)

    @seam.jit
    def helper(i):
        return lookup(i) + constant

    def entry(i):
        return seam.add(np.float32(helper(i)), SCALE)

    return entry


def build_with(value):
    def entry():
        return value

    return entry


def digest(constant=3, table=(1, 2, 3), seam=SEAM) -> str:
    return fingerprint(build(seam, constant, np.array(table, np.int32)), OWN)


def test_the_same_function_built_twice_has_one_fingerprint():
    assert digest() == digest()


def test_a_constant_or_a_table_deep_in_a_closure_shows():
    assert len({digest(), digest(constant=4), digest(constant=3.0), digest(table=(1, 2, 4))}) == 4


def test_another_helper_in_the_seam_shows():
    other = SimpleNamespace(**{**vars(SEAM), "add": SEAM.sub})
    assert digest() != digest(seam=other)


def test_a_global_shows(monkeypatch):
    before = digest()
    monkeypatch.setitem(globals(), "SCALE", np.float32(3))
    assert digest() != before


def test_compiler_options_show():
    def double(x):
        return x * 2

    plain, fast = njit(double), njit(fastmath=True)(double)
    assert len({fingerprint(f, OWN) for f in (plain, fast, jit(double), double)}) == 4


@pytest.mark.parametrize("one, other", [
    (1, True), (0.0, -0.0), (1, np.int32(1)), (np.int32(1), np.int64(1)), ("a", b"a"), ((1, 2), (1, (2,))), ([1], (1,)),
    (np.zeros(2), np.zeros((2, 1))), (np.zeros(2), np.zeros(2, np.int64)), ({"a": 1}, {"a": 2}), (int, float), (len, max),
    (Setting(1), Setting(2)), (SimpleNamespace(a=1), SimpleNamespace(a=2)), ({1, 2}, {1, 3}), (range(3), range(4)),
], ids=repr)
def test_different_values_have_different_fingerprints(one, other):
    assert fingerprint(build_with(one), OWN) == fingerprint(build_with(one), OWN)
    assert fingerprint(build_with(one), OWN) != fingerprint(build_with(other), OWN)


def test_an_object_of_unknown_kind_is_refused():
    with pytest.raises(TypeError, match="object"):
        fingerprint(build_with(object()), OWN)


def test_functions_that_call_each_other_have_an_end():
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    assert fingerprint(even, OWN) != fingerprint(odd, OWN)
