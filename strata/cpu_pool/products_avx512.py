"""Byte products with VPDPBUSD on 512 bits, for weights kept in memory: two vectors of words and of codes at a time.

Both halves of a sum of sixteen 32-bit lanes belong to the same eight groups; they are added in the end.  One row of weights
in registers takes the 256-bit helpers of `products_vnni`.  The contract of the helpers is in
`instruction_sets.ByteProducts`.  Does not know: which CPUs have it.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from strata.cpu_pool import products_vnni
from strata.cpu_pool.lanes import WORD, WORDS, LaneType, lane_operation, vector_intrinsic
from strata.numerics.cpu import jit

SIGNED_BIAS = products_vnni.SIGNED_BIAS
keep_signed, build_keep_levels = products_vnni.keep_signed, products_vnni.build_keep_levels
SIXTEEN = ir.VectorType(WORD, 16)
DOUBLE_WORDS = LaneType("double words", SIXTEEN)


@lane_operation(DOUBLE_WORDS, types.int64)
def _load(builder, at):
    return builder.load(builder.inttoptr(at, SIXTEEN.as_pointer()), align=1)


@lane_operation(DOUBLE_WORDS, DOUBLE_WORDS, DOUBLE_WORDS, DOUBLE_WORDS)
def _add_products(builder, total, w, x):
    return vector_intrinsic(builder, "llvm.x86.avx512.vpdpbusd.512", SIXTEEN, (total, w, x))


@intrinsic
def _nothing(typing_context):
    def emit(context, builder, signature, values):
        return ir.Constant(SIXTEEN, [0] * 16)

    return DOUBLE_WORDS(), emit


@lane_operation(WORDS, DOUBLE_WORDS)
def _halves_added(builder, total):
    halves = (ir.Constant(ir.VectorType(WORD, 8), list(range(first, first + 8))) for first in (0, 8))
    return builder.add(*(builder.shuffle_vector(total, total, half) for half in halves))


@jit
def _add_both(u, v, pages, n_bytes):
    p, q, r, s = pages
    a = b = c = d = e = f = g = h = _nothing()
    for at in range(0, n_bytes, 64):
        w, x = _load(u + at), _load(v + at)
        y = _load(p + at)
        a, e = _add_products(a, w, y), _add_products(e, x, y)
        y = _load(q + at)
        b, f = _add_products(b, w, y), _add_products(f, x, y)
        y = _load(r + at)
        c, g = _add_products(c, w, y), _add_products(g, x, y)
        y = _load(s + at)
        d, h = _add_products(d, w, y), _add_products(h, x, y)
    first = _halves_added(a), _halves_added(b), _halves_added(c), _halves_added(d)
    return first, (_halves_added(e), _halves_added(f), _halves_added(g), _halves_added(h))


def small(largest: int):
    """Return the helpers for unsigned weights: any byte will do."""
    return products_vnni.small(largest)[0], _add_both


def signed():
    """Return the helpers for int8 weights; the kept ones are unsigned."""
    return products_vnni.signed()[0], _add_both
