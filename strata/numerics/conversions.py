"""Conversions between float32 and words, half and bfloat16 bits, as both of Numba's targets emit them.

`build(intrinsic, types)` makes them for one target: its `intrinsic` decorator and its module of types.  All are exact but
`to_half`, which rounds to nearest even.  Does not know: which target.

    bits(f32) -> int32, from_bits(int32) -> f32
    half(uint32 bits) -> f32, to_half(f32) -> uint16
    brain(uint32 bits) -> f32 (bfloat16)
"""

from types import SimpleNamespace

from llvmlite import ir

FLOAT, HALF = ir.FloatType(), ir.HalfType()
SHORT, WORD = ir.IntType(16), ir.IntType(32)


def _bits(builder, value):
    return builder.bitcast(value, WORD)


def _from_bits(builder, value):
    return builder.bitcast(value, FLOAT)


def _half(builder, value):
    return builder.fpext(builder.bitcast(builder.trunc(value, SHORT), HALF), FLOAT)


def _to_half(builder, value):
    return builder.bitcast(builder.fptrunc(value, HALF), SHORT)


def _brain(builder, value):
    return builder.bitcast(builder.shl(value, ir.Constant(WORD, 16)), FLOAT)


def build(intrinsic, types) -> SimpleNamespace:
    """Return the conversions of the module's docstring for one target."""

    def conversion(emit_value, signature):
        def emit(context, builder, _, arguments):
            return emit_value(builder, arguments[0])

        return intrinsic(lambda typing_context, a: (signature, emit))

    return SimpleNamespace(
        bits=conversion(_bits, types.int32(types.float32)), from_bits=conversion(_from_bits, types.float32(types.int32)),
        half=conversion(_half, types.float32(types.uint32)), to_half=conversion(_to_half, types.uint16(types.float32)),
        brain=conversion(_brain, types.float32(types.uint32)),
    )
