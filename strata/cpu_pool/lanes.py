"""Eight lanes side by side: vector types for Numba code on the CPU.

The contract sums groups of 32 weights in eight lanes (group b in lane b mod 8), so the natural vector has eight 32-bit
lanes: `WORDS` holds eight 32-bit words (often seen as 32 bytes), `FLOATS` eight float32.  Kernels write expressions:

    (packed >> 4) & NIBBLES         words with + - * & | ^ << >>, the other operand words or an integer for all lanes;
                                    >> brings in zeros
    d * scale                       floats with + * /, each rounded once
    fma(a, b, c)                    floats: a * b + c, rounded once
    splat(i) splat_float(x)         eight copies of an int32 or a float32
    constant_words(values)          makes, outside kernels, a helper that returns eight constant words
    larger(a, b)                    signed maximum of words
    to_floats(words)                int32 -> float32, nearest even
    to_words(floats)                float32 -> int32, nearest, halves to even; magnitudes below 2^31
    as_words(floats) as_floats      the same bits
    first_lanes(n)                  words: all bits set in lanes 0 .. n-1, none in the others
    reaches(words, n)               words: all bits set where the int32 is at least n, else none
    choose(words, a, b)             floats: a where the word is not 0, else b

No operation here moves anything from one lane to another; those that do are in `lane_moves`, memory is in `lane_memory`.
All is plain LLVM vector code for any CPU; LLVM chooses the instructions.  Does not know: weights, sums.
"""

import operator

from llvmlite import ir
from numba import types
from numba.core.datamodel.models import PrimitiveModel
from numba.extending import intrinsic, overload, register_model

N_LANES = 8
BYTE, WORD, FLOAT = ir.IntType(8), ir.IntType(32), ir.FloatType()
WORD_LANES, FLOAT_LANES = ir.VectorType(WORD, N_LANES), ir.VectorType(FLOAT, N_LANES)


class LaneType(types.Type):
    """A Numba type of eight 32-bit lanes; `lanes` is the LLVM type."""

    def __init__(self, name: str, lanes: ir.VectorType) -> None:
        super().__init__(name=name)
        self.lanes = lanes


@register_model(LaneType)
class LaneModel(PrimitiveModel):
    """A lane type is one LLVM vector wherever it stands."""

    def __init__(self, manager, lane_type) -> None:
        super().__init__(manager, lane_type, lane_type.lanes)


WORDS = LaneType("words", WORD_LANES)
FLOATS = LaneType("floats", FLOAT_LANES)


# ---- making helpers from LLVM


def all_alike(builder, value):
    """Return the LLVM vector of eight copies of a scalar."""
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, N_LANES), ir.Undefined), value, WORD(0))
    return builder.shuffle_vector(one, one, ir.Constant(WORD_LANES, [0] * N_LANES))


def vector_intrinsic(builder, name, result, operands):
    """Call an LLVM intrinsic on vectors by its full name (llvmlite cannot derive such names)."""
    function = builder.module.declare_intrinsic(name, (), ir.FunctionType(result, [value.type for value in operands]))
    return builder.call(function, operands)


def lane_operation(result, *parameters):
    """Turn `emit(builder, *values)`, which emits LLVM code, into a helper for kernels with operands of these types."""

    def decorate(emit_values):
        def typed(typing_context):
            def emit(context, builder, signature, values):
                return emit_values(builder, *values)

            return result(*parameters), emit

        if len(parameters) == 1:
            return intrinsic(lambda typing_context, a: typed(typing_context))
        if len(parameters) == 2:
            return intrinsic(lambda typing_context, a, b: typed(typing_context))
        if len(parameters) == 3:
            return intrinsic(lambda typing_context, a, b, c: typed(typing_context))
        return intrinsic(lambda typing_context, a, b, c, d: typed(typing_context))

    return decorate


# ---- operators


def _define_operator(symbol, lane_type, method):
    """Let `symbol` work on two operands of a lane type, and on words with an integer that stands for all lanes."""

    @intrinsic
    def operation(typing_context, a, b):
        def emit(context, builder, signature, values):
            left, right = values
            if signature.args[1] != lane_type:
                right = all_alike(builder, context.cast(builder, right, signature.args[1], types.uint32))
            return getattr(builder, method)(left, right)

        return lane_type(a, b), emit

    @overload(symbol)
    def overloaded(a, b):
        if a == lane_type and (b == lane_type or lane_type == WORDS and isinstance(b, types.Integer)):
            return lambda a, b: operation(a, b)


for _symbol, _method in (
    (operator.add, "add"), (operator.sub, "sub"), (operator.mul, "mul"), (operator.and_, "and_"), (operator.or_, "or_"),
    (operator.xor, "xor"), (operator.lshift, "shl"), (operator.rshift, "lshr"),
):
    _define_operator(_symbol, WORDS, _method)
for _symbol, _method in ((operator.add, "fadd"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    _define_operator(_symbol, FLOATS, _method)


# ---- functions


@lane_operation(FLOATS, FLOATS, FLOATS, FLOATS)
def fma(builder, a, b, c):
    return vector_intrinsic(builder, "llvm.fma.v8f32", FLOAT_LANES, (a, b, c))


@lane_operation(WORDS, types.int32)
def splat(builder, value):
    return all_alike(builder, value)


@lane_operation(FLOATS, types.float32)
def splat_float(builder, value):
    return all_alike(builder, value)


@lane_operation(WORDS, WORDS, WORDS)
def larger(builder, a, b):
    return builder.select(builder.icmp_signed(">", a, b), a, b)


@lane_operation(FLOATS, WORDS)
def to_floats(builder, words):
    return builder.sitofp(words, FLOAT_LANES)


@lane_operation(WORDS, FLOATS)
def to_words(builder, floats):
    return builder.fptosi(vector_intrinsic(builder, "llvm.rint.v8f32", FLOAT_LANES, (floats,)), WORD_LANES)


@lane_operation(WORDS, FLOATS)
def as_words(builder, floats):
    return builder.bitcast(floats, WORD_LANES)


@lane_operation(FLOATS, WORDS)
def as_floats(builder, words):
    return builder.bitcast(words, FLOAT_LANES)


@lane_operation(WORDS, types.int32)
def first_lanes(builder, n):
    numbers = ir.Constant(WORD_LANES, list(range(N_LANES)))
    return builder.sext(builder.icmp_signed("<", numbers, all_alike(builder, n)), WORD_LANES)


@lane_operation(WORDS, WORDS, types.int32)
def reaches(builder, words, least):
    return builder.sext(builder.icmp_signed(">=", words, all_alike(builder, least)), WORD_LANES)


@lane_operation(FLOATS, WORDS, FLOATS, FLOATS)
def choose(builder, words, a, b):
    return builder.select(builder.icmp_signed("!=", words, ir.Constant(WORD_LANES, [0] * N_LANES)), a, b)


def constant_words(values):
    """Return a helper for kernels, without arguments, that returns eight constant words."""
    constant = ir.Constant(WORD_LANES, [int(value) for value in values])

    @intrinsic
    def words(typing_context):
        def emit(context, builder, signature, arguments):
            return constant

        return WORDS(), emit

    return words
