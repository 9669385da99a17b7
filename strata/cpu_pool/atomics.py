"""Atomic words, futexes and spinning for nogil Numba code on the CPU.

A word is one element of a one-dimensional C-contiguous int64 array, named by its index; no index is checked.  Every
operation on words is sequentially consistent, so they happen in one order that all threads agree on, and plain reads and
writes before a `store` are seen by whoever `load`s its value.  The operating system is reached by symbol name (`syscall`, `sched_yield`, `getpid`, `clock_gettime`), never by an address of this
process, so functions that use these helpers can be kept in a cache on disk.  Futexes compare the low 32 bits of a word
and exist on Linux only: `HAS_FUTEX` says whether `futex_wait` and `futex_wake` may be used.  Does not know: what the
words mean.

    load(words, i) -> int64                       store(words, i, value)
    load_flag(flags, i) -> int32                  acquire: with everything that whoever released the value wrote before
    store_flag(flags, i, value)                   release, of an int32 array that another device may read
    add(words, i, value) -> int64 before          compare_exchange(words, i, expected, desired) -> bool, swapped
    load_at(at) -> int64                          add_at(at, value) -> int64 before: the same of the word at an address
    futex_wait(words, i, expected)                sleep while the low half equals `expected`; may wake for no reason
    futex_wake(words, i, n)                       wake at most n sleepers
    pause() yield_core() process_id() clock_ns()  spin hint; give the core away; pid; monotonic nanoseconds
    current_core()                                number of the core that runs this
    set_cores(words, i, n_words, thread)          let a thread (its kernel id) run on the cores whose bits are set only
"""

import sys
from platform import machine

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WORD = ir.IntType(64)
INT = ir.IntType(32)
BYTES = ir.IntType(8).as_pointer()

FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98}
HAS_FUTEX = sys.platform == "linux" and machine() in FUTEX_NUMBERS
FUTEX_NUMBER = FUTEX_NUMBERS.get(machine(), 0)
FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE = 128, 129
CLOCK_MONOTONIC = 1


def _address(context, builder, array_type, array, index):
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _symbol(builder, name, result, parameters, var_arg=False):
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, parameters, var_arg=var_arg), name)


def _futex(builder, address, operation, value):
    syscall = _symbol(builder, "syscall", WORD, [WORD], var_arg=True)
    nothing = ir.Constant(BYTES, None)
    numbers = [ir.Constant(WORD, FUTEX_NUMBER), address, ir.Constant(WORD, operation), value]
    builder.call(syscall, [*numbers, nothing, nothing, ir.Constant(WORD, 0)])


@intrinsic
def load(typing_context, words, i):
    def emit(context, builder, signature, values):
        return builder.load_atomic(_address(context, builder, words, *values), "seq_cst", 8)

    return types.int64(words, types.int64), emit


@intrinsic
def store(typing_context, words, i, value):
    def emit(context, builder, signature, values):
        builder.store_atomic(values[2], _address(context, builder, words, *values[:2]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64), emit


@intrinsic
def load_flag(typing_context, flags, i):
    def emit(context, builder, signature, values):
        return builder.load_atomic(_address(context, builder, flags, *values), "acquire", 4)

    return types.int32(flags, types.int64), emit


@intrinsic
def store_flag(typing_context, flags, i, value):
    def emit(context, builder, signature, values):
        builder.store_atomic(values[2], _address(context, builder, flags, *values[:2]), "release", 4)
        return context.get_dummy_value()

    return types.void(flags, types.int64, types.int32), emit


@intrinsic
def add(typing_context, words, i, value):
    def emit(context, builder, signature, values):
        return builder.atomic_rmw("add", _address(context, builder, words, *values[:2]), values[2], "seq_cst")

    return types.int64(words, types.int64, types.int64), emit


def _word_at(builder, at):
    return builder.inttoptr(at, WORD.as_pointer())


@intrinsic
def load_at(typing_context, at):
    def emit(context, builder, signature, values):
        return builder.load_atomic(_word_at(builder, values[0]), "seq_cst", 8)

    return types.int64(types.int64), emit


@intrinsic
def add_at(typing_context, at, value):
    def emit(context, builder, signature, values):
        return builder.atomic_rmw("add", _word_at(builder, values[0]), values[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


@intrinsic
def compare_exchange(typing_context, words, i, expected, desired):
    def emit(context, builder, signature, values):
        address = _address(context, builder, words, *values[:2])
        return builder.extract_value(builder.cmpxchg(address, values[2], values[3], "seq_cst", "seq_cst"), 1)

    return types.boolean(words, types.int64, types.int64, types.int64), emit


@intrinsic
def futex_wait(typing_context, words, i, expected):
    def emit(context, builder, signature, values):
        address = _address(context, builder, words, *values[:2])
        _futex(builder, address, FUTEX_WAIT_PRIVATE, builder.and_(values[2], ir.Constant(WORD, 0xFFFFFFFF)))
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64), emit


@intrinsic
def futex_wake(typing_context, words, i, n):
    def emit(context, builder, signature, values):
        _futex(builder, _address(context, builder, words, *values[:2]), FUTEX_WAKE_PRIVATE, values[2])
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64), emit


@intrinsic
def pause(typing_context):
    def emit(context, builder, signature, values):
        if machine() == "aarch64":
            builder.call(_symbol(builder, "llvm.aarch64.hint", ir.VoidType(), [INT]), [ir.Constant(INT, 1)])
        else:
            builder.call(_symbol(builder, "llvm.x86.sse2.pause", ir.VoidType(), []), [])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def yield_core(typing_context):
    def emit(context, builder, signature, values):
        builder.call(_symbol(builder, "sched_yield", INT, []), [])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def process_id(typing_context):
    def emit(context, builder, signature, values):
        return builder.sext(builder.call(_symbol(builder, "getpid", INT, []), []), WORD)

    return types.int64(), emit


@intrinsic
def clock_ns(typing_context):
    def emit(context, builder, signature, values):
        pair = ir.LiteralStructType([WORD, WORD])
        moment = cgutils.alloca_once(builder, pair)
        clock = _symbol(builder, "clock_gettime", INT, [INT, BYTES])
        builder.call(clock, [ir.Constant(INT, CLOCK_MONOTONIC), builder.bitcast(moment, BYTES)])
        now = builder.load(moment)
        seconds = builder.mul(builder.extract_value(now, 0), ir.Constant(WORD, 1_000_000_000))
        return builder.add(seconds, builder.extract_value(now, 1))

    return types.int64(), emit


@intrinsic
def current_core(typing_context):
    def emit(context, builder, signature, values):
        if not HAS_FUTEX:
            return ir.Constant(WORD, 0)
        return builder.sext(builder.call(_symbol(builder, "sched_getcpu", INT, []), []), WORD)

    return types.int64(), emit


@intrinsic
def set_cores(typing_context, words, i, n_words, thread):
    def emit(context, builder, signature, values):
        if HAS_FUTEX:
            mask = builder.bitcast(_address(context, builder, words, *values[:2]), BYTES)
            n_bytes = builder.mul(values[2], ir.Constant(WORD, 8))
            function = _symbol(builder, "sched_setaffinity", INT, [INT, WORD, BYTES])
            builder.call(function, [builder.trunc(values[3], INT), n_bytes, mask])
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64, types.int64), emit
