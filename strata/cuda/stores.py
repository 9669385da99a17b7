"""A store of four neighbouring float32 values at once.

    store_four_floats(array, byte, a, b, c, d)     at a byte offset that is a multiple of 16

Loads of the kind and the store of one word are the seam's.  Does not know: kernels.
"""

from strata.cuda.seam import SIMULATED, jit

if SIMULATED:

    @jit
    def store_four_floats(array, byte, a, b, c, d):
        at = int(byte) // 4
        array[at], array[at + 1], array[at + 2], array[at + 3] = a, b, c, d

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    _FOUR = ir.VectorType(ir.FloatType(), 4)

    @intrinsic
    def store_four_floats(typing_context, array, byte, a, b, c, d):
        def emit(context, builder, signature, arguments):
            value = ir.Constant(_FOUR, ir.Undefined)
            for i in range(4):
                value = builder.insert_element(value, arguments[2 + i], ir.Constant(ir.IntType(32), i))
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [arguments[1]])
            builder.store(value, builder.bitcast(place, _FOUR.as_pointer()), align=16)
            return context.get_dummy_value()

        return types.void(array, types.int64, *(types.float32,) * 4), emit
