"""K/V cell formats on the host: how one head's vector of a cell is stored and read back.

    f32    float32, for mode `wide`
    f16    half precision, saturated at +-65504
    int8   groups of 64 values: half-precision scale = amax / 127 (saturated at 65504), code = round-half-even(x / scale
           clamped to +-127), 0 where the scale is 0 or NaN (a NaN in the group); value = code * scale

Every format stores (codes [slots, cells, heads, D], scales [slots, cells, heads, n_scales]).
Raw indexer keys are stored as f16, or f32 in mode `wide`.  Does not know: attention, positions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strata.errors import UsageError
from strata.host.float_vectors import LANES, widen_eights
from strata.numerics.cpu import div, from_bits, half, jit, mul, round_even, to_half
from strata.numerics.on_cpu import magnitude

ZERO = np.float32(0.0)
LARGEST_HALF = np.float32(65504.0)
LARGEST_CODE = np.float32(127.0)
INT8_GROUP = 64


@jit
def saturated_half(x):
    """Half-precision bits of x, nearest even, saturated at +-65504; NaN stays NaN."""
    if x > LARGEST_HALF:
        return to_half(LARGEST_HALF)
    if x < -LARGEST_HALF:
        return to_half(-LARGEST_HALF)
    return to_half(x)


@jit
def _store_f32(x, codes, scales):
    for i in range(x.shape[0]):
        codes[i] = x[i]


@jit
def _load_f32(codes, scales, out):
    for i in range(out.shape[0]):
        out[i] = codes[i]


@jit
def _store_f16(x, codes, scales):
    for i in range(x.shape[0]):
        codes[i] = saturated_half(x[i])


@jit
def _load_f16(codes, scales, out):
    whole = out.shape[0] - out.shape[0] % LANES
    widen_eights(codes, out, whole)
    for i in range(whole, out.shape[0]):
        out[i] = half(np.uint32(codes[i]))


@jit
def _clamped(x):
    """x within +-127; clamped before it becomes an integer, because huge quotients have no int32."""
    if x > LARGEST_CODE:
        return LARGEST_CODE
    return -LARGEST_CODE if x < -LARGEST_CODE else x


@jit
def _store_int8(x, codes, scales):
    for group in range(scales.shape[0]):
        largest = np.int32(0)
        for i in range(group * INT8_GROUP, (group + 1) * INT8_GROUP):
            m = magnitude(x[i])
            largest = m if m > largest else largest
        stored = saturated_half(div(from_bits(largest), LARGEST_CODE))
        scale = half(np.uint32(stored))
        scales[group] = stored
        for i in range(group * INT8_GROUP, (group + 1) * INT8_GROUP):
            code = round_even(_clamped(div(x[i], scale))) if scale > ZERO else np.int32(0)
            codes[i] = np.int8(code)


@jit
def _load_int8(codes, scales, out):
    for i in range(out.shape[0]):
        out[i] = mul(np.float32(codes[i]), half(np.uint32(scales[i // INT8_GROUP])))


@dataclass(frozen=True, slots=True)
class CellFormat:
    """One K/V format: `store(x, codes, scales)` and `load(codes, scales, out)` work on one head's vector of one cell."""

    name: str
    code_type: type
    values_per_scale: int
    store: Callable
    load: Callable

    def bytes_per_vector(self, n_values: int) -> int:
        """Bytes that one head's vector of n_values takes."""
        return n_values * np.dtype(self.code_type).itemsize + 2 * self.n_scales(n_values)

    def n_scales(self, n_values: int) -> int:
        """Half-precision scales stored with a vector; raises UsageError where the groups do not fill it."""
        if self.values_per_scale == 0:
            return 0
        if n_values % self.values_per_scale:
            why = f"{self.name} groups {self.values_per_scale} values and a head has {n_values}"
            raise UsageError(f"kv={self.name}", why, "use f16")
        return n_values // self.values_per_scale


CELL_FORMATS = {
    form.name: form
    for form in (
        CellFormat("f32", np.float32, 0, _store_f32, _load_f32),
        CellFormat("f16", np.uint16, 0, _store_f16, _load_f16),
        CellFormat("int8", np.int8, INT8_GROUP, _store_int8, _load_int8),
    )
}


def cell_format(name: str) -> CellFormat:
    """Return the K/V format called `name`; raises UsageError for an unknown one."""
    if name not in CELL_FORMATS:
        raise UsageError(f"kv={name}", "there is no such K/V format", f"use one of {', '.join(CELL_FORMATS)}")
    return CELL_FORMATS[name]
