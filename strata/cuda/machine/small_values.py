"""Whether one of eight values lies below 2^-100 in magnitude: what the delta net's memory stores as +0.

    any_small(a, b, c, d, e, f, g, h) -> bool       NaN does not

Four chains of comparisons of two values each, every one carrying the answer so far: eight instructions.  Written out because a compiler
makes one chain of them, and each link waits for the one before.  Does not know: memories.
"""

from strata.cuda.machine.seam import SIMULATED, jit

SMALLEST = 2.0**-100

if SIMULATED:

    @jit
    def any_small(a, b, c, d, e, f, g, h):
        return any(abs(value) < SMALLEST for value in (a, b, c, d, e, f, g, h))

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    from strata.cuda.machine.intrinsics import _assembly

    _LIMIT = f"0f{(127 - 100) << 23:08X}"
    _FIRST = "".join(f"abs.f32 m, ${i}; setp.lt.f32 p{i}, m, {_LIMIT}; " for i in range(1, 5))
    _SECOND = "".join(f"abs.f32 m, ${i + 4}; setp.lt.or.f32 p{i}, m, {_LIMIT}, p{i}; " for i in range(1, 5))
    _TEXT = "{ .reg .f32 m; .reg .pred p<5>; " + _FIRST + _SECOND + "or.pred p1, p1, p2; or.pred p3, p3, p4; or.pred $0, p1, p3; }"

    @intrinsic
    def any_small(typing_context, a, b, c, d, e, f, g, h):
        def emit(context, builder, signature, arguments):
            return _assembly(builder, ir.IntType(1), arguments, _TEXT, "=b," + ",".join("f" * 8), False)

        return types.boolean(*(types.float32,) * 8), emit
