"""The CPU's seam: explicitly rounded float operations, bit casts and memory reads for Numba on the CPU.

Everything in `numerics` and `formats` that runs in a kernel is written once, in a factory `build(seam)`, and compiled
once per executor.  A seam is a namespace with the names below; this one is for Numba's CPU target (LLVM), the CUDA
executor brings its own.  All float32 operations round to nearest even; none is contracted, because the CPU target
contracts only under `fastmath`, which is never used.  Does not know: formats, orders, operations.

    jit(function)             compile a helper that kernels call
    add sub mul div           float32 x float32 -> float32
    fma(a, b, c)              a * b + c, rounded once
    sqrt(a)                   correctly rounded
    bits(f32) -> int32, from_bits(int32) -> f32
    half(uint32 bits) -> f32, to_half(f32) -> uint16 (nearest even)
    brain(uint32 bits) -> f32 (bfloat16)
    load_u8 load_u16 load_u32 (raw, at) -> uint32    raw: uint8 array, at: byte offset, two-byte aligned for u16 and u32
    table(array) -> lookup(i) constant table of int32 or uint32 values
    round_even(f32) -> int32  nearest integer, halves to even; |x| < 2^31
"""

from types import SimpleNamespace

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from strata.numerics import conversions
from strata.numerics.half_symbols import provide
from strata.numerics.kernel_cache import keep_on_disk

FLOAT = ir.FloatType()
WORD = ir.IntType(32)


def jit(function):
    """Compile a helper for kernels: no bounds checks, no exceptions from divisions, inlined by LLVM where it pays."""
    return njit(nogil=True, error_model="numpy", no_cpython_wrapper=True)(function)


def inlined(function):
    """Compile a helper as `jit` does; its code stands wherever it is called, however long it is."""
    return njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, forceinline=True)(function)


def kernel(function):
    """Compile an entry point that Python calls: releases the GIL, kept in the kernel cache on disk."""
    return keep_on_disk(njit(nogil=True, error_model="numpy")(function))


def _binary(name):
    @intrinsic
    def operation(typing_context, a, b):
        def emit(context, builder, signature, arguments):
            return getattr(builder, name)(*arguments)

        return types.float32(types.float32, types.float32), emit

    return operation


add, sub, mul, div = (_binary(name) for name in ("fadd", "fsub", "fmul", "fdiv"))


@intrinsic
def fma(typing_context, a, b, c):
    def emit(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), emit


@intrinsic
def sqrt(typing_context, a):
    def emit(context, builder, signature, arguments):
        return builder.call(builder.module.declare_intrinsic("llvm.sqrt", (FLOAT,)), arguments)

    return types.float32(types.float32), emit


CONVERSIONS = conversions.build(intrinsic, types)
bits, from_bits = CONVERSIONS.bits, CONVERSIONS.from_bits
half, to_half, brain = CONVERSIONS.half, CONVERSIONS.to_half, CONVERSIONS.brain


@intrinsic
def round_even(typing_context, a):
    def emit(context, builder, signature, arguments):
        rounded = builder.call(builder.module.declare_intrinsic("llvm.rint", (FLOAT,)), arguments)
        return builder.fptosi(rounded, WORD)

    return types.int32(types.float32), emit


def _load(bits_read):
    integer = ir.IntType(bits_read)

    @intrinsic
    def load(typing_context, raw, at):
        def emit(context, builder, signature, arguments):
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            data = builder.bitcast(array.data, ir.IntType(8).as_pointer())
            address = builder.bitcast(builder.gep(data, [arguments[1]]), integer.as_pointer())
            value = builder.load(address, align=1)
            return value if bits_read == 32 else builder.zext(value, WORD)

        return types.uint32(raw, types.int64), emit

    return load


load_u8, load_u16, load_u32 = _load(8), _load(16), _load(32)


def table(array: np.ndarray):
    """Return a helper `lookup(i)` over a constant one-dimensional int32 or uint32 array."""
    constant = np.ascontiguousarray(array)

    @jit
    def lookup(i):
        return constant[i]

    return lookup


HALF_SYMBOLS = provide(bits, from_bits, add, mul)
"""Kept alive: compiled code calls them on CPUs without F16C."""

SEAM = SimpleNamespace(
    jit=jit, add=add, sub=sub, mul=mul, div=div, fma=fma, sqrt=sqrt, bits=bits, from_bits=from_bits, half=half,
    to_half=to_half, brain=brain, round_even=round_even, load_u8=load_u8, load_u16=load_u16, load_u32=load_u32, table=table,
)
