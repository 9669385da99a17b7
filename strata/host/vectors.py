"""Integer dot products of int8 codes and halving sums of float lanes, as LLVM vectors.

An exact integer sum has no order, and a halving sum's order is written in its shuffles, so these may use whatever vector
instructions the machine has; plain loops would give the same bits.  Target-independent vector IR: LLVM picks AVX2, AVX-512
or scalar code.  Does not know: scales, what the lanes hold.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

BYTE = ir.IntType(8)
WORD = ir.IntType(32)
FLOAT = ir.FloatType()


def _vector_at(context, builder, array_type, array, byte, n_values):
    data = context.make_array(array_type)(context, builder, array).data
    address = builder.gep(builder.bitcast(data, BYTE.as_pointer()), [byte])
    vector = builder.load(builder.bitcast(address, ir.VectorType(BYTE, n_values).as_pointer()), align=1)
    return builder.sext(vector, ir.VectorType(WORD, n_values))


def _dot(n_values):
    @intrinsic
    def dot(typing_context, a, a_byte, b, b_byte):
        def emit(context, builder, signature, arguments):
            left = _vector_at(context, builder, signature.args[0], arguments[0], arguments[1], n_values)
            right = _vector_at(context, builder, signature.args[2], arguments[2], arguments[3], n_values)
            product = builder.mul(left, right)
            reduce_type = ir.FunctionType(WORD, [product.type])
            name = f"llvm.vector.reduce.add.v{n_values}i32"
            return builder.call(builder.module.declare_intrinsic(name, (), reduce_type), [product])

        return types.int32(a, types.int64, b, types.int64), emit

    return dot


dot16, dot32 = _dot(16), _dot(32)
"""dot(a, a_byte, b, b_byte) -> int32: sum of 16 or 32 products of int8 values at byte offsets of contiguous arrays."""


def _halves(builder, vector):
    width = vector.type.count // 2
    indices = ir.VectorType(WORD, width)
    return (builder.shuffle_vector(vector, vector, ir.Constant(indices, list(range(first, first + width)))) for first in (0, width))


def _halving_sum(n_lanes):
    @intrinsic
    def halving_sum(typing_context, lanes):
        def emit(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            total = builder.load(builder.bitcast(data, ir.VectorType(FLOAT, n_lanes).as_pointer()), align=4)
            while total.type.count > 1:
                total = builder.fadd(*_halves(builder, total))
            return builder.extract_element(total, WORD(0))

        return types.float32(lanes), emit

    return halving_sum


halving_sum64, halving_sum256 = _halving_sum(64), _halving_sum(256)
"""halving_sum(lanes) -> float32: the halving tree over the first 64 or 256 values of a contiguous float32 array."""
