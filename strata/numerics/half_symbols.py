"""Conversions of half precision for CPUs that have no instruction for them (F16C).

Without the instruction LLVM calls `__extendhfsf2` and `__truncsfhf2`, which a compiler's runtime library would bring and a
Python process does not have.  They are given to the linker here, written in integers: exact one way, nearest even the other.
By the x86-64 convention a half travels in the low 16 bits of a float register, hence the signatures.  With F16C nothing is
done.  Does not know: who converts.
"""

import numpy as np
from llvmlite import binding
from numba import cfunc, types
from numba.core.registry import cpu_target

NEEDED = "+f16c"
SCALE = np.float32(2.0**112)
"""Moves a half's exponent, read as a float's, to where it belongs; exact for subnormals too."""
ONE_HALF = np.float32(0.5)
"""Its unit in the last place is a half's smallest step, so that adding it rounds to that step."""
SIGN, MAGNITUDE, INFINITY = np.int32(0x8000), np.int32(0x7FFFFFFF), np.int32(0x7F800000)
HALF_INFINITY, HALF_NAN = np.int32(0x7C00), np.int32(0x7E00)
SMALLEST_NORMAL, FIRST_TOO_LARGE = np.int32(0x38800000), np.int32(0x47800000)
"""2^-14 and 65536 as float bits."""


def provide(bits, from_bits, add, mul) -> tuple:
    """Make the two symbols known where the CPU lacks the instruction; returns what must stay alive.

    The arguments are the seam's primitives of `strata.numerics.cpu`.
    """
    if NEEDED in cpu_target.target_context.codegen().magic_tuple()[2].split(","):
        return ()

    @cfunc(types.float32(types.float32))
    def extend(packed):
        half = np.int32(bits(packed) & 0xFFFF)
        sign, rest = np.int32((half & SIGN) << 16), np.int32((half & 0x7FFF) << 13)
        if half & HALF_INFINITY == HALF_INFINITY:
            return from_bits(np.int32(rest | INFINITY | sign))
        return from_bits(np.int32(bits(mul(from_bits(rest), SCALE)) | sign))

    @cfunc(types.float32(types.float32))
    def truncate(value):
        word = bits(value)
        sign, size = np.int32((word >> 16) & SIGN), np.int32(word & MAGNITUDE)
        if size > INFINITY:
            half = HALF_NAN
        elif size >= FIRST_TOO_LARGE:
            half = HALF_INFINITY
        elif size >= SMALLEST_NORMAL:
            half = np.int32((size + 0xFFF + ((size >> 13) & 1) - (112 << 23)) >> 13)
        else:
            half = np.int32(bits(add(from_bits(size), ONE_HALF)) - bits(ONE_HALF))
        return from_bits(np.int32(half | sign))

    binding.add_symbol("__extendhfsf2", extend.address)
    binding.add_symbol("__truncsfhf2", truncate.address)
    return extend, truncate
