"""The weight formats by ggml type id and by name: one line per format.

Does not know: which formats an executor has kernels for.
"""

from strata.errors import ModelFileError
from strata.formats import (
    floats, iq1_m, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs, q2_0, q3_k, q4_0, q4_k, q5_0, q5_1, q5_k,
    q6_k, q8_0,
)
from strata.formats.contract import WeightFormat
from strata.formats.floats import FloatFormat

_BLOCK_FORMATS = (
    q4_0.FORMAT,
    q5_0.FORMAT,
    q5_1.FORMAT,
    q8_0.FORMAT,
    q2_0.FORMAT,
    q3_k.FORMAT,
    q4_k.FORMAT,
    q5_k.FORMAT,
    q6_k.FORMAT,
    iq1_m.FORMAT,
    iq2_xxs.FORMAT,
    iq2_xs.FORMAT,
    iq2_s.FORMAT,
    iq3_xxs.FORMAT,
    iq3_s.FORMAT,
    iq4_nl.FORMAT,
    iq4_xs.FORMAT,
)

FORMATS: dict[int, WeightFormat] = {form.type_id: form for form in _BLOCK_FORMATS}
"""Block formats by ggml type id."""

FLOATS: dict[int, FloatFormat] = {form.type_id: form for form in (floats.F32, floats.F16, floats.BF16)}
"""Plain float types by ggml type id."""


def by_id(type_id: int) -> WeightFormat | FloatFormat:
    """Return the format of a ggml type id; ModelFileError if it is none of ours."""
    found = FORMATS.get(type_id) or FLOATS.get(type_id)
    if found is None:
        raise _unknown(f"weight type {type_id}")
    return found


def by_name(name: str) -> WeightFormat | FloatFormat:
    """Return the format called `name` in ggml ("Q4_K", "BF16"), in any case; ModelFileError if it is none of ours."""
    for found in (*FORMATS.values(), *FLOATS.values()):
        if found.name == name.upper():
            return found
    raise _unknown(f"weight type {name!r}")


def _unknown(what: str) -> ModelFileError:
    names = ", ".join(sorted(found.name for found in (*FORMATS.values(), *FLOATS.values())))
    return ModelFileError(what, "no such format is known here", f"use a file with {names} weights only")
