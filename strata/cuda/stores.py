"""Stores of aligned vectors, for kernels that write several neighbouring values at once.

    store_four_floats(array, byte, a, b, c, d)     four float32 at a byte offset that is a multiple of 16
    store_word(array, byte, word)                  the four bytes of an int32 at a byte offset that is a multiple of 4

Loads of the kind are the seam's.  Does not know: kernels.
"""

from strata.cuda.seam import SIMULATED, jit

if SIMULATED:
    import numpy as np

    @jit
    def store_four_floats(array, byte, a, b, c, d):
        at = int(byte) // 4
        array[at], array[at + 1], array[at + 2], array[at + 3] = a, b, c, d

    @jit
    def store_word(array, byte, word):
        values = np.array([word], np.int32).view(np.int8)
        for i in range(4):
            array[int(byte) + i] = values[i]

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    _BYTE, _WORD = ir.IntType(8), ir.IntType(32)
    _FOUR = ir.VectorType(ir.FloatType(), 4)

    def _address(context, builder, array_type, array, byte, pointee):
        data = context.make_array(array_type)(context, builder, array).data
        return builder.bitcast(builder.gep(builder.bitcast(data, _BYTE.as_pointer()), [byte]), pointee.as_pointer())

    @intrinsic
    def store_four_floats(typing_context, array, byte, a, b, c, d):
        def emit(context, builder, signature, arguments):
            value = ir.Constant(_FOUR, ir.Undefined)
            for i in range(4):
                value = builder.insert_element(value, arguments[2 + i], ir.Constant(_WORD, i))
            builder.store(value, _address(context, builder, signature.args[0], *arguments[:2], _FOUR), align=16)
            return context.get_dummy_value()

        return types.void(array, types.int64, *(types.float32,) * 4), emit

    @intrinsic
    def store_word(typing_context, array, byte, word):
        def emit(context, builder, signature, arguments):
            builder.store(arguments[2], _address(context, builder, signature.args[0], *arguments[:2], _WORD), align=4)
            return context.get_dummy_value()

        return types.void(array, types.int64, types.int32), emit
