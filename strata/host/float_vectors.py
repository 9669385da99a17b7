"""Sums of float products as LLVM vectors of eight: the eight-lane and the 256-lane order, and reading half-precision values.

The eight-lane order is one vector: lane = i mod 8, a fused chain per lane, the halving tree over the lanes.  The 256-lane
order is 32 vectors; vector g and those 4, 8, .. 28 behind it are summed at once, each a chain, and meet in the halving
tree's own pairs.  Widening a half or a bfloat16 is exact.  Plain loops would give the same bits.
Does not know: cells, heads, what the products are for.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from strata.numerics.cpu import HALF

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


def _widen_brain(builder, stored):
    words = builder.zext(stored, ir.VectorType(WORD, LANES))
    return builder.bitcast(builder.shl(words, ir.Constant(words.type, [16] * LANES)), FLOATS)


def _widen_half(builder, stored):
    return builder.fpext(builder.bitcast(stored, HALVES), FLOATS)


READERS = {
    "BF16": (ir.VectorType(ir.IntType(16), LANES), _widen_brain),
    "F16": (ir.VectorType(ir.IntType(16), LANES), _widen_half),
    "F32": (FLOATS, lambda builder, stored: stored),
}
"""Float types -> (eight values as they are stored, how they become float32)."""


class _Rows:
    """Addresses of one weight row and one activation row as vectors of eight; `pair(at)` reads both."""

    def __init__(self, context, builder, signature, arguments, reader) -> None:
        stored, self._widen = reader
        weights, n, x, row, n_in = arguments
        self.builder = builder
        self.n_eights = builder.lshr(n_in, ir.Constant(n_in.type, 3))
        self._weights = builder.gep(_eights(context, builder, signature.args[0], weights, stored), [builder.mul(n, self.n_eights)])
        self._x = builder.gep(_eights(context, builder, signature.args[2], x, FLOATS), [builder.mul(row, self.n_eights)])
        self._align = 2 if stored is not FLOATS else 4

    def pair(self, at):
        """Return eight weights and eight activations, float32."""
        stored = self.builder.load(self.builder.gep(self._weights, [at]), align=self._align)
        return self._widen(self.builder, stored), self.builder.load(self.builder.gep(self._x, [at]), align=4)


def _signature(weights, n, x, row, n_in):
    _require_contiguous(weights, x)
    return types.float32(weights, types.int64, x, types.int64, types.int64)


def wide_sum(type_name: str):
    """Return sum(weights, n, x, row, n_in) -> float32: the 256-lane sum of weights[n, i] * x[row, i]; n_in a multiple of 256."""
    reader = READERS[type_name]

    @intrinsic
    def total(typing_context, weights, n, x, row, n_in):
        def emit(context, builder, signature, arguments):
            rows, fma = _Rows(context, builder, signature, arguments, reader), _fma(builder)
            word = rows.n_eights.type
            steps = builder.lshr(rows.n_eights, ir.Constant(word, 5))
            quarters = []
            for first in range(4):
                chains = [cgutils.alloca_once_value(builder, ir.Constant(FLOATS, [0.0] * LANES)) for _ in range(8)]
                for chain in chains:
                    builder.store(ir.Constant(FLOATS, [0.0] * LANES), chain)
                with cgutils.for_range(builder, steps) as loop:
                    base = builder.add(builder.shl(loop.index, ir.Constant(word, 5)), ir.Constant(word, first))
                    for i, chain in enumerate(chains):
                        weight, value = rows.pair(builder.add(base, ir.Constant(word, 4 * i)))
                        builder.store(builder.call(fma, [weight, value, builder.load(chain)]), chain)
                quarters.append(_halve(builder, [builder.load(chain) for chain in chains]))
            return _halving_sum(builder, _halve(builder, quarters))

        return _signature(weights, n, x, row, n_in), emit

    return total


def short_sum(type_name: str):
    """Return sum(weights, n, x, row, n_in) -> float32 for n_in = 64: one product per lane, +0 added, the tree over 64 lanes."""
    reader = READERS[type_name]

    @intrinsic
    def total(typing_context, weights, n, x, row, n_in):
        def emit(context, builder, signature, arguments):
            rows, fma, zero = _Rows(context, builder, signature, arguments, reader), _fma(builder), ir.Constant(FLOATS, [0.0] * LANES)
            lanes = [builder.call(fma, [*rows.pair(ir.Constant(rows.n_eights.type, i)), zero]) for i in range(8)]
            return _halving_sum(builder, _halve(builder, [builder.fadd(lane, zero) for lane in lanes]))

        return _signature(weights, n, x, row, n_in), emit

    return total


def _halve(builder, vectors):
    """Return the sum of vectors in the halving tree's pairs: v + v[n/2], down to one."""
    while len(vectors) > 1:
        half = len(vectors) // 2
        vectors = [builder.fadd(a, b) for a, b in zip(vectors[:half], vectors[half:], strict=True)]
    return vectors[0]
