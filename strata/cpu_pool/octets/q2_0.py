"""Octets of Q2_0: four blocks of 64 weights, two groups each, four codes of two bits in a byte."""

import numpy as np

from strata.cpu_pool.lane_memory import collect_halves_twice, load_halves
from strata.cpu_pool.lane_moves import even_words, odd_words
from strata.cpu_pool.lanes import splat, splat_float
from strata.cpu_pool.octets.contract import OctetReader
from strata.formats.bytewise import BYTE, PAIRS
from strata.formats.q2_0 import FORMAT, NIBBLE_EACH_HALF
from strata.numerics.cpu import jit

ONE = np.int32(1)
ZERO = np.float32(0.0)


@jit
def _spread(words):
    """The low byte's four 2-bit codes become four bytes."""
    codes = words & BYTE
    halves = (codes | (codes << 12)) & NIBBLE_EACH_HALF
    return (halves | (halves << 6)) & PAIRS


def build() -> OctetReader:
    stride = FORMAT.block_bytes

    @jit
    def unpack(at):
        codes = at + 2
        a, b = load_halves(codes, codes + 2 * stride), load_halves(codes + stride, codes + 3 * stride)
        e, o = even_words(a, b), odd_words(a, b)
        low = _spread(e), _spread(e >> 8), _spread(e >> 16), _spread(e >> 24)
        words = low + (_spread(o), _spread(o >> 8), _spread(o >> 16), _spread(o >> 24))
        return words, collect_halves_twice(at, stride), splat(ONE), splat(ONE), splat_float(ZERO)

    return OctetReader(unpack, bias=1, largest=3, has_scales=False)
