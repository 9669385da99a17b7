"""Lanes and memory: loads and stores at any address, and columns collected from eight places.

    address_of(array)                                   int64: where a contiguous array's data begins
    keep_alive(array)                                   does nothing, but the array lives until here
    on_stack(n_bytes)                                   address of bytes that last until the calling function returns
    load(at) load_floats(at)                            32 bytes, no alignment asked for
    store(at, words) store_floats(at, floats)           eight lanes;  store_float, store_word, store_byte: scalars
    prefetch(at)                                        bring a cache line nearer; any address will do
    load_halves(low, high)                              16 bytes each: lanes 0..3 and 4..7
    load_byte(at) load_short(at) load_word(at) load_float(at)
                                                        scalars of 8, 16 and 32 bits
    splat_half(bits) -> floats                          eight copies of the half-precision number with these bits, widened
    collect_words(at, stride)                           lane k: the 32-bit word at `at` + k * stride
    collect_halves(at, stride) -> floats                lane k: the half-precision number there, widened
    blend_halves(at, stride) -> floats                  the same with less shuffling and wider loads; stride at least 2
    collect_halves_twice(at, stride)                    lane k: the one at `at` + (k // 2) * stride
    widen_bytes(at) widen_shorts(at)                    lane k: the k-th of eight unsigned bytes or 16-bit words
    widen_brains(at) widen_halves(at) -> floats         eight bfloat16 or half-precision numbers
    widen_word_bytes(a, b) widen_word_shorts(a, b, c, d)
                                                        the same from scalar words, low parts first
    look_up_bytes(table, words)                         each byte (0..15) becomes that byte of the sixteen in its half of
                                                        `table`; needs AVX2
    byte_table(values)                                  makes, outside kernels, `looked_up(words)`: the same in eight vectors
    look_up(table)                                      makes, outside kernels, `entry(words)`: table[index] in each lane,
                                                        for a constant one-dimensional table of 32-bit words

Addresses are int64: a kernel takes them from arrays that its caller keeps alive, so that inner helpers pass no arrays (each
array passed costs two atomic counts).  No bound is checked.  Does not know: block layouts.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from strata.cpu_pool.lanes import (
    BYTE, FLOAT, FLOAT_LANES, FLOATS, N_LANES, WORD, WORD_LANES, WORDS, all_alike, constant_words, lane_operation, vector_intrinsic,
)
from strata.numerics.cpu import jit

ADDRESS = types.int64
SHORT = ir.IntType(16)
BYTE_OCTET, HALF_LANES, SHORT_LANES = (ir.VectorType(element, N_LANES) for element in (BYTE, ir.HalfType(), SHORT))
QUARTET, BYTES = ir.VectorType(WORD, 4), ir.VectorType(BYTE, 32)


@intrinsic
def address_of(typing_context, array):
    def emit(context, builder, signature, values):
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return ADDRESS(array), emit


@intrinsic
def on_stack(typing_context, n_bytes):
    def emit(context, builder, signature, values):
        return builder.ptrtoint(builder.alloca(BYTE, values[0]), ir.IntType(64))

    return ADDRESS(ADDRESS), emit


@intrinsic
def keep_alive(typing_context, array):
    def emit(context, builder, signature, values):
        return context.get_dummy_value()

    return types.void(array), emit


def _read(builder, at, stored):
    """Load a value of an LLVM type at an address of any alignment."""
    return builder.load(builder.inttoptr(at, stored.as_pointer()), align=1)


def _loader(result, stored, finish=lambda builder, value: value):
    """Make `load(at)` for an LLVM type in memory, turned into what kernels use by `finish(builder, value)`."""

    @lane_operation(result, ADDRESS)
    def load(builder, at):
        return finish(builder, _read(builder, at, stored))

    return load


load, load_floats = _loader(WORDS, WORD_LANES), _loader(FLOATS, FLOAT_LANES)
load_byte, load_float = _loader(types.uint8, BYTE), _loader(types.float32, FLOAT)
load_word = _loader(types.uint32, WORD)
load_short = _loader(types.uint32, SHORT, lambda builder, value: builder.zext(value, WORD))
widen_bytes = _loader(WORDS, BYTE_OCTET, lambda builder, value: builder.zext(value, WORD_LANES))
widen_shorts = _loader(WORDS, SHORT_LANES, lambda builder, value: builder.zext(value, WORD_LANES))

widen_halves = _loader(FLOATS, HALF_LANES, lambda builder, value: builder.fpext(value, FLOAT_LANES))


@lane_operation(FLOATS, ADDRESS)
def widen_brains(builder, at):
    words = builder.zext(_read(builder, at, SHORT_LANES), WORD_LANES)
    return builder.bitcast(builder.shl(words, ir.Constant(WORD_LANES, [16] * N_LANES)), FLOAT_LANES)


def _storer(value_type):
    @intrinsic
    def store(typing_context, at, value):
        def emit(context, builder, signature, values):
            builder.store(values[1], builder.inttoptr(values[0], values[1].type.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(ADDRESS, value_type), emit

    return store


store, store_floats = _storer(WORDS), _storer(FLOATS)
store_float, store_word, store_byte = (_storer(kind) for kind in (types.float32, types.uint32, types.uint8))


@intrinsic
def prefetch(typing_context, at):
    def emit(context, builder, signature, values):
        pointer = builder.inttoptr(values[0], BYTE.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, WORD, WORD, WORD])
        function = builder.module.declare_intrinsic("llvm.prefetch.p0", (), kind)
        builder.call(function, [pointer, WORD(0), WORD(3), WORD(1)])  # for reading, into every level, data
        return context.get_dummy_value()

    return types.void(ADDRESS), emit


@lane_operation(WORDS, ADDRESS, ADDRESS)
def load_halves(builder, low, high):
    halves = [_read(builder, at, QUARTET) for at in (low, high)]
    return builder.shuffle_vector(*halves, ir.Constant(WORD_LANES, list(range(N_LANES))))


def _packed(builder, words):
    """Return scalar words as one LLVM vector."""
    lanes = ir.Constant(ir.VectorType(WORD, len(words)), [0] * len(words))
    for place, word in enumerate(words):
        lanes = builder.insert_element(lanes, word, WORD(place))
    return lanes


@lane_operation(WORDS, types.uint32, types.uint32)
def widen_word_bytes(builder, a, b):
    return builder.zext(builder.bitcast(_packed(builder, (a, b)), BYTE_OCTET), WORD_LANES)


@lane_operation(WORDS, types.uint32, types.uint32, types.uint32, types.uint32)
def widen_word_shorts(builder, a, b, c, d):
    return builder.zext(builder.bitcast(_packed(builder, (a, b, c, d)), SHORT_LANES), WORD_LANES)


def _collector(result, stored_lanes, finish, lanes_a_place=1):
    """Make `collect(at, stride)`: one element from each of eight places, or of fewer that serve several lanes each."""

    @lane_operation(result, ADDRESS, ADDRESS)
    def collect(builder, at, stride):
        lanes = ir.Constant(stored_lanes, [0] * N_LANES)
        for lane in range(N_LANES):
            lanes = builder.insert_element(lanes, _read(builder, at, stored_lanes.element), WORD(lane))
            if (lane + 1) % lanes_a_place == 0:
                at = builder.add(at, stride)
        return finish(builder, lanes)

    return collect


def _from_halves(builder, lanes):
    return builder.fpext(builder.bitcast(lanes, HALF_LANES), FLOAT_LANES)


@lane_operation(FLOATS, types.uint32)
def splat_half(builder, bits):
    return _from_halves(builder, all_alike(builder, builder.trunc(bits, SHORT)))


collect_words = _collector(WORDS, WORD_LANES, lambda builder, lanes: lanes)
collect_halves, collect_halves_twice = (_collector(FLOATS, SHORT_LANES, _from_halves, n) for n in (1, 2))


@lane_operation(FLOATS, ADDRESS, ADDRESS)
def blend_halves(builder, at, stride):
    """Blend eight vectors, each read from where its number lies in the lane that takes it: nothing is read past the last number."""
    lanes, step = _read(builder, at, SHORT_LANES), builder.sub(stride, stride.type(2))
    for lane in range(1, N_LANES):
        at = builder.add(at, step)
        picked = ir.Constant(WORD_LANES, [k + N_LANES * (k == lane) for k in range(N_LANES)])
        lanes = builder.shuffle_vector(lanes, _read(builder, at, SHORT_LANES), picked)
    return _from_halves(builder, lanes)


@lane_operation(WORDS, WORDS, WORDS)
def look_up_bytes(builder, table, words):
    operands = [builder.bitcast(value, BYTES) for value in (table, words)]
    return builder.bitcast(vector_intrinsic(builder, "llvm.x86.avx2.pshuf.b", BYTES, operands), WORD_LANES)


def byte_table(values):
    """Return a helper for kernels, `looked_up(words)`: in eight vectors, each byte n (0..15) becomes values[n] mod 256."""
    sixteen = (np.asarray(values) & 0xFF).astype(np.uint8).view("<u4")
    table = constant_words([*sixteen, *sixteen])

    @jit
    def looked_up(words):
        w0, w1, w2, w3, w4, w5, w6, w7 = words
        t = table()
        low = look_up_bytes(t, w0), look_up_bytes(t, w1), look_up_bytes(t, w2), look_up_bytes(t, w3)
        return low + (look_up_bytes(t, w4), look_up_bytes(t, w5), look_up_bytes(t, w6), look_up_bytes(t, w7))

    return looked_up


@intrinsic
def _gather(typing_context, table, indices):
    def emit(context, builder, signature, values):
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        words = ir.Constant(WORD_LANES, ir.Undefined)
        for lane in range(N_LANES):
            index = builder.zext(builder.extract_element(values[1], WORD(lane)), ir.IntType(64))
            words = builder.insert_element(words, builder.load(builder.gep(data, [index])), WORD(lane))
        return words

    return WORDS(table, WORDS), emit


def look_up(table: np.ndarray):
    """Return a helper for kernels that looks up each lane's word in a constant table."""
    constant = np.ascontiguousarray(table)

    @jit
    def entry(indices):
        return _gather(constant, indices)

    return entry
