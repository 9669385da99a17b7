"""K/V cell formats on a card: how a warp stores one head's vector of a cell.

The formats and rules of host/cells.py: f32; f16, saturated; int8 with one half-precision scale per 64 values.  A warp holds the
vector with value 32 m + t in register m of thread t.  Codes are flat [slots, cells, heads, D], scales uint16 flat
[slots, cells, heads, D / 64].  Does not know: attention, positions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from strata.cuda.machine.on_cuda import magnitude
from strata.cuda.machine.seam import div, from_bits, half, jit, round_even, to_half
from strata.cuda.machine.shapes import require
from strata.cuda.machine.warps import largest_int

ZERO = np.float32(0.0)
LARGEST_HALF, SMALLEST_HALF = np.float32(65504.0), np.float32(-65504.0)
LARGEST_CODE, SMALLEST_CODE = np.float32(127.0), np.float32(-127.0)
INT8_GROUP = 64


@jit
def saturated_half(x):
    """Half-precision bits of x, nearest even, saturated at +-65504; NaN stays NaN."""
    if x > LARGEST_HALF:
        return to_half(LARGEST_HALF)
    if x < SMALLEST_HALF:
        return to_half(SMALLEST_HALF)
    return to_half(x)


@jit
def _clamped(x):
    if x > LARGEST_CODE:
        return LARGEST_CODE
    return SMALLEST_CODE if x < SMALLEST_CODE else x


def _store_f32(size):
    per_thread = size // 32

    @jit
    def store(values, thread, codes, scales, vector):
        for m in range(per_thread):
            codes[vector * size + 32 * m + thread] = values[m]

    return store


def _store_f16(size):
    per_thread = size // 32

    @jit
    def store(values, thread, codes, scales, vector):
        for m in range(per_thread):
            codes[vector * size + 32 * m + thread] = saturated_half(values[m])

    return store


def _store_int8(size):
    n_groups = size // INT8_GROUP

    @jit
    def store(values, thread, codes, scales, vector):
        for group in range(n_groups):
            a, b = values[2 * group], values[2 * group + 1]
            largest = largest_int(max(magnitude(a), magnitude(b)))
            stored = saturated_half(div(from_bits(largest), LARGEST_CODE))
            scale = half(np.uint32(stored))
            at = vector * size + group * INT8_GROUP + thread
            if scale > ZERO:
                codes[at] = np.int8(round_even(_clamped(div(a, scale))))
                codes[at + 32] = np.int8(round_even(_clamped(div(b, scale))))
            else:
                codes[at] = np.int8(0)
                codes[at + 32] = np.int8(0)
            if thread == 0:
                scales[vector * n_groups + group] = stored

    return store


@dataclass(frozen=True, slots=True)
class CardCellFormat:
    """One format: bytes per value, values per scale (0: none), and the builder of `store(values, thread, codes, scales, vector)`.

    `vector` (int64) counts vectors of D values from the start of the codes.
    """

    name: str
    value_bytes: int
    values_per_scale: int
    build_store: Callable


CELL_FORMATS = {
    form.name: form
    for form in (
        CardCellFormat("f32", 4, 0, _store_f32),
        CardCellFormat("f16", 2, 0, _store_f16),
        CardCellFormat("int8", 1, INT8_GROUP, _store_int8),
    )
}


@cache
def cell_store(name: str, size: int):
    """Return the device helper that stores vectors of `size` values in the format `name`."""
    require(name in CELL_FORMATS, f"kv={name}", "there is no such K/V format", f"use one of {', '.join(CELL_FORMATS)}")
    form = CELL_FORMATS[name]
    group = form.values_per_scale or 32
    require(size % group == 0, f"kv={name}", f"it groups {group} values and a head has {size}", "use f16")
    return form.build_store(size)
