"""Integer dot products of int8 codes as LLVM vectors, for the plain products (`products`).

An exact integer sum has no order, so these may use whatever vector instructions the machine has; plain loops would give the
same value.  Target-independent vector IR: LLVM picks AVX2, AVX-512 or scalar code.  Does not know: scales.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

BYTE = ir.IntType(8)
WORD = ir.IntType(32)


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
