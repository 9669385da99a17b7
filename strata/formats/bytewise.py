"""Arithmetic on four bytes at once, in 32-bit words.

Formats unpack four weights per word, as bytes of one integer: the same few operations run on a CPU (where LLVM widens
them to vectors) and in a CUDA thread.

Numba computes integers in 64 bits and lets signed operands win: uint32 with a literal gives int64, uint64 with one
float64.  So all constants here and in the formats are uint32; `& | ^ << >>` among them stay unsigned and need no cast
as long as no bit beyond the 32nd comes back; sums, differences and products are cast to uint32 at once.  Signed results
are made by one cast at the end.

Does not know: block layouts.
"""

from types import SimpleNamespace

import numpy as np

ONES = np.uint32(0x01010101)
PAIRS = np.uint32(0x03030303)
NIBBLES = np.uint32(0x0F0F0F0F)
TOP_BITS = np.uint32(0x80808080)
NIBBLE = np.uint32(0xF)
BYTE = np.uint32(0xFF)
SPREAD = np.uint32(0x00204081)
"""Multiplying by 1 + 2^7 + 2^14 + 2^21 moves bits 0, 1, 2, 3 to 0, 8, 16, 24; the 16 partial products never meet."""


def build(seam: SimpleNamespace) -> SimpleNamespace:
    """Compile the byte helpers for one executor.

    minus(w, k)       -> int32    bytes of w (0..127) minus bytes of k (0..127), as four int8
    spread(bits)      -> uint32   bit i (i < 4) becomes the low bit of byte i; higher bits are ignored
    signed(w, negate) -> int32    bytes of w (1..127), negated where the low bit of `negate`'s byte is set
    """

    @seam.jit
    def minus(w, k):
        return np.int32(np.uint32(np.uint32(w | TOP_BITS) - np.uint32(k)) ^ TOP_BITS)

    @seam.jit
    def spread(bits):
        return np.uint32(np.uint32(np.uint32(bits & NIBBLE) * SPREAD) & ONES)

    @seam.jit
    def signed(w, negate):
        flipped = np.uint32(w) ^ np.uint32(np.uint32(negate) * BYTE)
        return np.int32(np.uint32(flipped) + np.uint32(negate))

    return SimpleNamespace(minus=minus, spread=spread, signed=signed)
