"""The intrinsics behind `addresses.py`.  Does not know: the simulator."""

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from strata.cuda.machine.intrinsics import BYTE, FLOAT, GLOBAL, LONG, SHARED, SHORT, VOID, WORD, _assembly


def _address_of(space: int, text: str):
    @intrinsic
    def address(typing_context, array):
        def emit(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            pointer = builder.addrspacecast(builder.bitcast(data, BYTE.as_pointer()), BYTE.as_pointer(space))
            number = builder.ptrtoint(pointer, LONG)
            return _assembly(builder, LONG, [number], text, "=l,l", False) if text else number

        return types.int64(array), emit

    return address


shared_address = _address_of(SHARED, "mov.u64 $0, $1;")
"""The line of PTX hides where the address comes from: it stays in its register."""
global_address = _address_of(GLOBAL, "")


def _load(element, n_values: int, align: int, numba_type, has_array: bool):
    """Return a load from a shared address; with `has_array`, in the form of a seam's: load(ignored, address)."""
    kind = element if n_values == 1 else ir.VectorType(element, n_values)

    def emit(context, builder, signature, arguments):
        value = builder.load(builder.inttoptr(arguments[-1], kind.as_pointer(SHARED)), align=align)
        if n_values > 1:
            parts = [builder.extract_element(value, ir.Constant(WORD, i)) for i in range(n_values)]
            return context.make_tuple(builder, signature.return_type, parts)
        return value if element in (WORD, FLOAT) else builder.zext(value, WORD)

    result = numba_type if n_values == 1 else types.UniTuple(numba_type, n_values)
    if has_array:
        return intrinsic(lambda typing_context, raw, at: (result(raw, types.int64), emit))
    return intrinsic(lambda typing_context, at: (result(types.int64), emit))


load_u8, load_u16 = _load(BYTE, 1, 1, types.uint32, True), _load(SHORT, 1, 2, types.uint32, True)
load_word = _load(WORD, 1, 4, types.uint32, True)
shared_word, shared_half_word = _load(WORD, 1, 4, types.uint32, False), _load(SHORT, 1, 2, types.uint32, False)
shared_two_words, shared_four_words = _load(WORD, 2, 8, types.int32, False), _load(WORD, 4, 16, types.int32, False)
shared_two_floats, shared_four_floats = _load(FLOAT, 2, 8, types.float32, False), _load(FLOAT, 4, 16, types.float32, False)


@intrinsic
def store_shared_float(typing_context, at, value):
    """Write a float32 to a shared address."""

    def emit(context, builder, signature, arguments):
        builder.store(arguments[1], builder.inttoptr(arguments[0], FLOAT.as_pointer(SHARED)), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), emit


@intrinsic
def store_shared_four_floats(typing_context, at, first, second, third, fourth):
    """Write four float32 to a shared address that is a multiple of 16."""

    def emit(context, builder, signature, arguments):
        kind = ir.VectorType(FLOAT, 4)
        vector = ir.Constant(kind, ir.Undefined)
        for i in range(4):
            vector = builder.insert_element(vector, arguments[1 + i], ir.Constant(WORD, i))
        builder.store(vector, builder.inttoptr(arguments[0], kind.as_pointer(SHARED)), align=16)
        return context.get_dummy_value()

    return types.void(types.int64, *(types.float32,) * 4), emit


@intrinsic
def load_pair_words(typing_context, raw, at):
    def emit(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[1], SHORT.as_pointer(SHARED))
        low = builder.zext(builder.load(place, align=2), WORD)
        high = builder.zext(builder.load(builder.gep(place, [ir.Constant(WORD, 1)]), align=2), WORD)
        return builder.or_(low, builder.shl(high, ir.Constant(WORD, 16)))

    return types.uint32(raw, types.int64), emit


@intrinsic
def store_global_float(typing_context, at, value):
    def emit(context, builder, signature, arguments):
        builder.store(arguments[1], builder.inttoptr(arguments[0], FLOAT.as_pointer(GLOBAL)), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), emit


_FOUR = ir.VectorType(WORD, 4)


@intrinsic
def global_four_words(typing_context, at):
    """Sixteen bytes at a global address, or at one of mapped host memory."""

    def emit(context, builder, signature, arguments):
        value = builder.load(builder.inttoptr(arguments[0], _FOUR.as_pointer(GLOBAL)), align=16)
        parts = [builder.extract_element(value, ir.Constant(WORD, i)) for i in range(4)]
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(types.int32, 4)(types.int64), emit


@intrinsic
def store_global_four_words(typing_context, at, a, b, c, d):
    def emit(context, builder, signature, arguments):
        value = ir.Constant(_FOUR, ir.Undefined)
        for i in range(4):
            value = builder.insert_element(value, arguments[1 + i], ir.Constant(WORD, i))
        builder.store(value, builder.inttoptr(arguments[0], _FOUR.as_pointer(GLOBAL)), align=16)
        return context.get_dummy_value()

    return types.void(types.int64, *(types.int32,) * 4), emit


@intrinsic
def prefetch(typing_context, at, n_bytes):
    def emit(context, builder, signature, arguments):
        _assembly(builder, VOID, arguments, "cp.async.bulk.prefetch.L2.global [$0], $1;", "l,r,~{memory}", True)
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), emit


def copier(n_bytes: int, to_offset: int, from_offset: int, asynchronous: bool, once: bool):
    level = "cg" if once else "ca"
    text = f"cp.async.{level}.shared.global [$0+{to_offset}], [$1+{from_offset}], {n_bytes};"
    vector = ir.VectorType(WORD, n_bytes // 4)

    @intrinsic
    def copy(typing_context, to, source):
        def emit(context, builder, signature, arguments):
            if asynchronous:
                _assembly(builder, VOID, arguments, text, "l,l,~{memory}", True)
                return context.get_dummy_value()
            target = builder.inttoptr(builder.add(arguments[0], ir.Constant(LONG, to_offset)), vector.as_pointer(SHARED))
            origin = builder.inttoptr(builder.add(arguments[1], ir.Constant(LONG, from_offset)), vector.as_pointer(GLOBAL))
            builder.store(builder.load(origin, align=n_bytes), target, align=n_bytes)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return copy
