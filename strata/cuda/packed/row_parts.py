"""The inner parts of `rows.py` and `pairs.py`: one group's step for a few activation rows, and the tree.

Does not know: where weights and activations come from.
"""

import numpy as np

from strata.cuda.machine.addresses import shared_four_words, shared_two_words
from strata.cuda.machine.seam import add, dp4a, dp4a_unsigned, exchange_float, fma, from_bits, jit, mul
from strata.cuda.packed.readers import CudaReader

NOTHING = np.int32(0)
"""In the place of an array, which readers of shared memory ignore."""


@jit
def tree_of_lanes(total):
    """Sum the eight lanes that eight neighbouring threads hold; every one of them gets the sum."""
    total = add(total, exchange_float(total, np.int32(4)))
    total = add(total, exchange_float(total, np.int32(2)))
    return add(total, exchange_float(total, np.int32(1)))


def group_meeting(reader: CudaReader, split_scales: bool, has_offset: bool):
    """Build `meet(words, scales, group, codes, dx, total_codes, lane)`: a chain's next value, one group of weights met.

    words, codes: eight words each; scales: (d, s0, s1, offset) as the reader gives them; dx, total_codes: the activations'.
    """
    bias, shift = reader.bias, reader.shift
    dot = dp4a_unsigned if reader.unsigned else dp4a
    shifted, uses_sums = shift is not None, has_offset or bias != 0
    shift = shift or tree_of_lanes

    @jit
    def meet(words, scales, group, codes, dx, total_codes, lane):
        w0, w1, w2, w3, w4, w5, w6, w7 = words
        d, s0, s1, offset = scales
        x0, x1, x2, x3, x4, x5, x6, x7 = codes
        first = dot(w3, x3, dot(w2, x2, dot(w1, x1, dot(w0, x0, np.int32(0)))))
        second = dot(w7, x7, dot(w6, x6, dot(w5, x5, dot(w4, x4, np.int32(0)))))
        if split_scales:
            exact = np.int32(np.int32(s0 * first) + np.int32(s1 * second))
        else:
            both = np.int32(first + second)
            if shifted:
                both = np.int32(both >> shift(group))
            if bias != 0:
                both = np.int32(both - np.int32(bias * total_codes))
            exact = np.int32(s0 * both)
        lane = fma(mul(d, dx), np.float32(exact), lane)
        if uses_sums and has_offset:
            lane = fma(mul(offset, dx), np.float32(total_codes), lane)
        return lane

    return meet


def group_step(reader: CudaReader, split_scales: bool, has_offset: bool, n_rows: int):
    """Build `step(at, group, codes_at, codes_pitch, marks_at, marks_pitch, lanes)`.

    One group of a weight row, its block at address `at`, meets n_rows activation rows (codes at codes_at + r codes_pitch, the
    second half 128 bytes on; scale and sum at marks_at + r marks_pitch); lanes float32 [n_rows] are this thread's chains.
    """
    eight, unpack_scales, meet = reader.eight, reader.scales, group_meeting(reader, split_scales, has_offset)

    @jit
    def step(at, group, codes_at, codes_pitch, marks_at, marks_pitch, lanes):
        words, scales = eight(NOTHING, at, group), unpack_scales(NOTHING, at, group)
        for r in range(n_rows):
            x0, x1, x2, x3 = shared_four_words(codes_at + r * codes_pitch)
            x4, x5, x6, x7 = shared_four_words(codes_at + r * codes_pitch + 128)
            dx_bits, total_codes = shared_two_words(marks_at + r * marks_pitch)
            lanes[r] = meet(words, scales, group, (x0, x1, x2, x3, x4, x5, x6, x7), from_bits(dx_bits), total_codes, lanes[r])

    return step


def pair_step(reader: CudaReader, split_scales: bool, has_offset: bool, n_rows: int):
    """Build `step(left_at, right_at, group, codes_at, codes_pitch, marks_at, marks_pitch, left, right)`.

    As `group_step` for two weight rows, whose activations are read once; left, right float32 [n_rows] are their chains.
    """
    eight, unpack_scales, meet = reader.eight, reader.scales, group_meeting(reader, split_scales, has_offset)

    @jit
    def step(left_at, right_at, group, codes_at, codes_pitch, marks_at, marks_pitch, left, right):
        left_words, left_scales = eight(NOTHING, left_at, group), unpack_scales(NOTHING, left_at, group)
        right_words, right_scales = eight(NOTHING, right_at, group), unpack_scales(NOTHING, right_at, group)
        for r in range(n_rows):
            x0, x1, x2, x3 = shared_four_words(codes_at + r * codes_pitch)
            x4, x5, x6, x7 = shared_four_words(codes_at + r * codes_pitch + 128)
            dx_bits, total_codes = shared_two_words(marks_at + r * marks_pitch)
            codes, dx = (x0, x1, x2, x3, x4, x5, x6, x7), from_bits(dx_bits)
            left[r] = meet(left_words, left_scales, group, codes, dx, total_codes, left[r])
            right[r] = meet(right_words, right_scales, group, codes, dx, total_codes, right[r])

    return step
