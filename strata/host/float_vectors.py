"""Sums of float products as LLVM vectors of eight: the eight-lane order, and reading half-precision values.

The eight-lane order is one vector: lane = i mod 8, a fused chain per lane, the halving tree over the lanes.  Widening a half
is exact.  Plain loops would give the same bits.  Does not know: cells, heads, what the products are for.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from strata.numerics.conversions import HALF

LANES = 8
WORD = ir.IntType(32)
FLOATS = ir.VectorType(ir.FloatType(), LANES)
HALVES = ir.VectorType(HALF, LANES)


def _eights(context, builder, array_type, array, vector):
    """Return the address of an array's data as vectors of eight."""
    return builder.bitcast(context.make_array(array_type)(context, builder, array).data, vector.as_pointer())


def _require_contiguous(*arrays):
    for array in arrays:
        if not isinstance(array, types.Array) or array.layout != "C":
            raise TypingError(f"vectors are read from contiguous arrays, not from {array}")


def _fma(builder):
    return builder.module.declare_intrinsic("llvm.fma.v8f32", (), ir.FunctionType(FLOATS, [FLOATS] * 3))


def _halving_sum(builder, total):
    """Return the halving sum of a vector's lanes."""
    while total.type.count > 1:
        half = total.type.count // 2
        picks = (ir.Constant(ir.VectorType(WORD, half), list(range(first, first + half))) for first in (0, half))
        total = builder.fadd(*(builder.shuffle_vector(total, total, pick) for pick in picks))
    return builder.extract_element(total, WORD(0))


@intrinsic
def dot_eights(typing_context, a, b, n):
    """dot_eights(a, b, n) -> float32: the eight-lane sum of a[i] * b[i], i < n, n a multiple of 8."""
    _require_contiguous(a, b)

    def emit(context, builder, signature, arguments):
        left, right = (_eights(context, builder, signature.args[i], arguments[i], FLOATS) for i in (0, 1))
        fma = _fma(builder)
        lanes = cgutils.alloca_once_value(builder, ir.Constant(FLOATS, [0.0] * LANES))
        with cgutils.for_range(builder, builder.lshr(arguments[2], ir.Constant(arguments[2].type, 3))) as loop:
            x, y = (builder.load(builder.gep(address, [loop.index]), align=4) for address in (left, right))
            builder.store(builder.call(fma, [x, y, builder.load(lanes)]), lanes)
        return _halving_sum(builder, builder.load(lanes))

    return types.float32(a, b, types.int64), emit


@intrinsic
def widen_eights(typing_context, codes, out, n):
    """widen_eights(codes, out, n): out[i] = the half-precision value with bits codes[i], i < n, n a multiple of 8."""
    _require_contiguous(codes, out)

    def emit(context, builder, signature, arguments):
        halves = _eights(context, builder, signature.args[0], arguments[0], HALVES)
        floats = _eights(context, builder, signature.args[1], arguments[1], FLOATS)
        with cgutils.for_range(builder, builder.lshr(arguments[2], ir.Constant(arguments[2].type, 3))) as loop:
            value = builder.fpext(builder.load(builder.gep(halves, [loop.index]), align=2), FLOATS)
            builder.store(value, builder.gep(floats, [loop.index]), align=4)
        return context.get_dummy_value()

    return types.void(codes, out, types.int64), emit
