"""A store of four neighbouring float32 values at once, and copies made of it.

    store_four_floats(array, byte, a, b, c, d)     at a byte offset that is a multiple of 16
    copy_floats(source, target, first_byte, n_fours, thread, n_threads)

Loads of the kind and the store of one word are the seam's.  Does not know: kernels.
"""

import numpy as np

from strata.cuda.machine.seam import SIMULATED, jit, load_four_floats

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


@jit
def copy_floats(source, target, first_byte, n_fours, thread, n_threads):
    """Copy float32 [4 n_fours], n_fours > 0, to byte first_byte of target: four loads on their way at once, surplus ones of the last."""
    last = np.int64(n_fours - 1)
    for i in range(thread, n_fours, 4 * n_threads):
        at, bt = 16 * np.int64(i), 16 * min(np.int64(i) + n_threads, last)
        ct, dt = 16 * min(np.int64(i) + 2 * n_threads, last), 16 * min(np.int64(i) + 3 * n_threads, last)
        a0, a1, a2, a3 = load_four_floats(source, at)
        b0, b1, b2, b3 = load_four_floats(source, bt)
        c0, c1, c2, c3 = load_four_floats(source, ct)
        d0, d1, d2, d3 = load_four_floats(source, dt)
        store_four_floats(target, first_byte + at, a0, a1, a2, a3)
        store_four_floats(target, first_byte + bt, b0, b1, b2, b3)
        store_four_floats(target, first_byte + ct, c0, c1, c2, c3)
        store_four_floats(target, first_byte + dt, d0, d1, d2, d3)
