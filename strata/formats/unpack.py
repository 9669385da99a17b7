"""Whole rows of a weight format on the CPU: as integers and scales, or as float32 values.

A weight's value is  d * float32(s * q), rounded once, and where the format has an offset the sum with it, rounded once
more.  float32(s * q) is exact.  The helpers are for kernels of the CPU target; `dequantise` is for Python.
Does not know: tensors, files, activations.
"""

from functools import cache

import numpy as np

from strata.errors import ModelFileError
from strata.formats.contract import GROUP, WeightFormat
from strata.numerics.cpu import SEAM, kernel


@cache
def row_unpacker(format: WeightFormat):
    """Compile `unpack_row(raw, at, n_groups, q, d, s, offset)`: one row as integers and scales.

    raw: uint8 bytes, the row starts at byte `at` and has n_groups * 32 weights, a whole number of blocks.  Fills
    q int32 [n_groups * 8] (four int8 codes each, weight 4i in the low byte), d float32 [n_groups],
    s int32 [n_groups * 2] (weights 0..15 and 16..31 of a group), offset float32 [n_groups].
    """
    reader = format.build(SEAM)
    word, scales = reader.word, reader.scales
    groups_per_block, block_bytes = format.block_weights // GROUP, format.block_bytes

    @SEAM.jit
    def unpack_row(raw, at, n_groups, q, d, s, offset):
        for block in range(n_groups // groups_per_block):
            for group in range(groups_per_block):
                g = block * groups_per_block + group
                for j in range(8):
                    q[8 * g + j] = word(raw, at, group, j)
                d[g], s[2 * g], s[2 * g + 1], offset[g] = scales(raw, at, group)
            at += block_bytes

    return unpack_row


@cache
def row_dequantiser(format: WeightFormat):
    """Compile `dequantise_row(raw, at, n_groups, out)`: one row as values, out float32 [n_groups * 32]."""
    reader = format.build(SEAM)
    word, scales = reader.word, reader.scales
    groups_per_block, block_bytes, has_offset = format.block_weights // GROUP, format.block_bytes, format.has_offset
    add, mul = SEAM.add, SEAM.mul

    @SEAM.jit
    def dequantise_row(raw, at, n_groups, out):
        for block in range(n_groups // groups_per_block):
            for group in range(groups_per_block):
                first = (block * groups_per_block + group) * GROUP
                d, s0, s1, offset = scales(raw, at, group)
                for j in range(8):
                    codes = word(raw, at, group, j)
                    s = s0 if j < 4 else s1
                    for i in range(4):
                        code = np.int32(np.int8(codes >> (8 * i)))
                        value = mul(d, np.float32(s * code))
                        out[first + 4 * j + i] = add(value, offset) if has_offset else value
            at += block_bytes

    return dequantise_row


@cache
def _dequantiser(format: WeightFormat):
    dequantise_row = row_dequantiser(format)

    @kernel
    def dequantise_all(raw, n_groups, out):
        dequantise_row(raw, 0, n_groups, out)

    return dequantise_all


def dequantise(format: WeightFormat, raw: np.ndarray, n_weights: int) -> np.ndarray:
    """Return the values of the first `n_weights` weights stored in `raw`, float32 [n_weights].

    raw: uint8, contiguous, one or more whole rows.  ModelFileError if the weights do not fill blocks or bytes lack.
    """
    n_blocks, rest = divmod(n_weights, format.block_weights)
    if rest:
        raise ModelFileError(
            f"n_weights={n_weights}", f"{format.name} stores blocks of {format.block_weights} weights",
            "ask for whole blocks",
        )
    data = np.ascontiguousarray(raw).reshape(-1).view(np.uint8)
    if data.size < n_blocks * format.block_bytes:
        raise ModelFileError(
            f"{data.size} bytes of {format.name}", f"{n_weights} weights take {n_blocks * format.block_bytes}",
            "check that the file is complete",
        )
    data.flags.writeable = False
    out = np.empty(n_weights, np.float32)
    _dequantiser(format)(data, n_weights // GROUP, out)
    return out
