"""Instructions that Numba has no name for, as intrinsics of its CUDA target.

Rounded float32 operations are NVVM's `*.rn` intrinsics, which no later stage contracts; everything else is a bit cast, a
memory access, a warp collective or a line of inline PTX.  `seam.py` gives the names their meaning; here is only how they
are emitted.  Does not know: the simulator (`simulated.py`), kernels.
"""

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from strata.numerics import conversions

FLOAT = ir.FloatType()
BYTE, SHORT, WORD, LONG, BIT = (ir.IntType(n) for n in (8, 16, 32, 64, 1))
VOID = ir.VoidType()
GLOBAL, SHARED = 1, 3
FULL_WARP = 0xFFFFFFFF


def _call(builder, name, result, arguments):
    module = builder.module
    kind = ir.FunctionType(result, [a.type for a in arguments])
    function = module.globals.get(name) or ir.Function(module, kind, name)
    return builder.call(function, arguments)


def _assembly(builder, result, arguments, text, constraints, side_effect):
    kind = ir.FunctionType(result, [a.type for a in arguments])
    return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=side_effect), arguments)


def rounded(name, n_arguments):
    """Return an intrinsic for one float32 operation of NVVM, `llvm.nvvm.<name>`."""
    signature = types.float32(*(types.float32,) * n_arguments)

    def emit(context, builder, _, arguments):
        return _call(builder, f"llvm.nvvm.{name}", FLOAT, arguments)

    if n_arguments == 3:
        return intrinsic(lambda typing_context, a, b, c: (signature, emit))
    if n_arguments == 2:
        return intrinsic(lambda typing_context, a, b: (signature, emit))
    return intrinsic(lambda typing_context, a: (signature, emit))


add, mul, div = rounded("add.rn.f", 2), rounded("mul.rn.f", 2), rounded("div.rn.f", 2)
fma, sqrt = rounded("fma.rn.f", 3), rounded("sqrt.rn.f", 1)


CONVERSIONS = conversions.build(intrinsic, types)
bits, from_bits = CONVERSIONS.bits, CONVERSIONS.from_bits
half, to_half, brain = CONVERSIONS.half, CONVERSIONS.to_half, CONVERSIONS.brain


@intrinsic
def round_even(typing_context, a):
    def emit(context, builder, signature, arguments):
        return _call(builder, "llvm.nvvm.f2i.rn", WORD, arguments)

    return types.int32(types.float32), emit


def _address(context, builder, array_type, array, byte, pointee):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(builder.bitcast(data, BYTE.as_pointer()), [byte]), pointee.as_pointer())


def load_of(n_bits):
    """Return `load(raw, at) -> uint32`: n_bits at a byte offset that is a multiple of their size."""
    integer = ir.IntType(n_bits)

    @intrinsic
    def load(typing_context, raw, at):
        def emit(context, builder, signature, arguments):
            address = _address(context, builder, signature.args[0], *arguments, integer)
            value = builder.load(address, align=n_bits // 8)
            return value if n_bits == 32 else builder.zext(value, WORD)

        return types.uint32(raw, types.int64), emit

    return load


load_u8, load_u16, load_word = load_of(8), load_of(16), load_of(32)


@intrinsic
def load_pair_words(typing_context, raw, at):
    """uint32 at an offset that is a multiple of two: two loads of 16 bits."""

    def emit(context, builder, signature, arguments):
        address = _address(context, builder, signature.args[0], *arguments, SHORT)
        low = builder.zext(builder.load(address, align=2), WORD)
        high = builder.zext(builder.load(builder.gep(address, [ir.Constant(WORD, 1)]), align=2), WORD)
        return builder.or_(low, builder.shl(high, ir.Constant(WORD, 16)))

    return types.uint32(raw, types.int64), emit


def vector_load(element, numba_type, n_values):
    """Return `load(array, byte) -> tuple`: n_values of 32 bits from an offset that is a multiple of their total size."""
    vector = ir.VectorType(element, n_values)

    @intrinsic
    def load(typing_context, array, at):
        result = types.UniTuple(numba_type, n_values)

        def emit(context, builder, signature, arguments):
            value = builder.load(_address(context, builder, signature.args[0], *arguments, vector), align=4 * n_values)
            parts = [builder.extract_element(value, ir.Constant(WORD, i)) for i in range(n_values)]
            return context.make_tuple(builder, signature.return_type, parts)

        return result(array, types.int64), emit

    return load


load_four_words, load_two_words = vector_load(WORD, types.int32, 4), vector_load(WORD, types.int32, 2)
load_four_floats, load_two_floats = vector_load(FLOAT, types.float32, 4), vector_load(FLOAT, types.float32, 2)


@intrinsic
def store_word(typing_context, array, at, value):
    """Write an int32 at a byte offset that is a multiple of four."""

    def emit(context, builder, signature, arguments):
        address = _address(context, builder, signature.args[0], arguments[0], arguments[1], WORD)
        builder.store(arguments[2], address, align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int32), emit


def constant_table(array):
    """Return an intrinsic `lookup(i)` over a constant array that lies in global memory and is read through the L1 cache."""
    kind, numba_type = ir.ArrayType(WORD, array.size), types.int32 if array.dtype.kind == "i" else types.uint32
    values = [int(v) for v in array]

    @intrinsic
    def lookup(typing_context, i):
        def emit(context, builder, signature, arguments):
            module = builder.module
            variable = ir.GlobalVariable(module, kind, module.get_unique_name("strata_table"), addrspace=GLOBAL)
            variable.global_constant, variable.linkage, variable.align = True, "internal", 16
            variable.initializer = ir.Constant(kind, values)
            return builder.load(builder.gep(variable, [ir.Constant(LONG, 0), arguments[0]]), align=4)

        return numba_type(types.int64), emit

    return lookup


def _plus(builder, text):
    """A line of PTX that must stay where it is."""
    return _assembly(builder, VOID, [], text, "~{memory}", True)


def barrier_like(text):
    """Return an intrinsic `f()` that emits one line of PTX, ordered against memory accesses."""

    def emit(context, builder, signature, arguments):
        _plus(builder, text)
        return context.get_dummy_value()

    return intrinsic(lambda typing_context: (types.void(), emit))


@intrinsic
def dp4a(typing_context, a, b, c):
    def emit(context, builder, signature, arguments):
        return _assembly(builder, WORD, arguments, "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", False)

    return types.int32(types.int32, types.int32, types.int32), emit


@intrinsic
def dp4a_unsigned(typing_context, a, b, c):
    """As dp4a with the bytes of a from 0 to 255."""

    def emit(context, builder, signature, arguments):
        return _assembly(builder, WORD, arguments, "dp4a.u32.s32 $0, $1, $2, $3;", "=r,r,r,r", False)

    return types.int32(types.uint32, types.int32, types.int32), emit


@intrinsic
def permute_bytes(typing_context, a, b, selector):
    """Byte i of the result is byte `selector >> 4i & 7` of the eight bytes of a (0..3) and b (4..7)."""

    def emit(context, builder, signature, arguments):
        return _assembly(builder, WORD, arguments, "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", False)

    return types.uint32(types.uint32, types.uint32, types.uint32), emit


def _matrix_call(context, builder, signature, arguments, text, n_results):
    constraints = ",".join(["=r"] * n_results + ["r"] * len(arguments))
    kind = ir.LiteralStructType([WORD] * n_results)
    together = _assembly(builder, kind, arguments, text, constraints, False)
    parts = [builder.extract_value(together, i) for i in range(n_results)]
    return context.make_tuple(builder, signature.return_type, parts)


FOUR = types.UniTuple(types.int32, 4)
M16K32 = (
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
    "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
)
M16K16 = "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {$0, $1, $2, $3}, {$4, $5}, {$6}, {$7, $8, $9, $10};"
M8K16 = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {$0, $1}, {$2}, {$3}, {$4, $5};"


@intrinsic
def mma_m16n8k32(typing_context, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
    def emit(context, builder, signature, arguments):
        return _matrix_call(context, builder, signature, arguments, M16K32, 4)

    return FOUR(*(types.int32,) * 10), emit


@intrinsic
def mma_m16n8k16(typing_context, a0, a1, b0, c0, c1, c2, c3):
    def emit(context, builder, signature, arguments):
        return _matrix_call(context, builder, signature, arguments, M16K16, 4)

    return FOUR(*(types.int32,) * 7), emit


@intrinsic
def mma_m8n8k16(typing_context, a0, b0, c0, c1):
    def emit(context, builder, signature, arguments):
        return _matrix_call(context, builder, signature, arguments, M8K16, 2)

    return types.UniTuple(types.int32, 2)(*(types.int32,) * 4), emit


def _shuffle(kind, numba_type, element):
    """Return `shuffle(value, lane_or_mask)` over all 32 threads of a warp; kind is `idx` or `bfly`."""

    @intrinsic
    def shuffle(typing_context, value, lane):
        def emit(context, builder, signature, arguments):
            word = builder.bitcast(arguments[0], WORD)
            text = f"shfl.sync.{kind}.b32 $0, $1, $2, 31, {FULL_WARP:#x};"
            moved = _assembly(builder, WORD, [word, arguments[1]], text, "=r,r,r", True)
            return builder.bitcast(moved, element)

        return numba_type(numba_type, types.int32), emit

    return shuffle


shuffle_float, shuffle_int = _shuffle("idx", types.float32, FLOAT), _shuffle("idx", types.int32, WORD)
exchange_float, exchange_int = _shuffle("bfly", types.float32, FLOAT), _shuffle("bfly", types.int32, WORD)
sync_warp = barrier_like("bar.warp.sync 0xffffffff;")
copy_commit = barrier_like("cp.async.commit_group;")
wait_for_dependency = barrier_like("griddepcontrol.wait;")
launch_dependents = barrier_like("griddepcontrol.launch_dependents;")


def copy_wait(n_pending):
    """Return an intrinsic `wait()`: all but the latest n_pending groups of copies of this thread have landed."""
    return barrier_like(f"cp.async.wait_group {n_pending};")


def _copy_addresses(context, builder, signature, arguments):
    target = _address(context, builder, signature.args[0], arguments[0], arguments[1], BYTE)
    source = _address(context, builder, signature.args[2], arguments[2], arguments[3], BYTE)
    return target, source


def copy_async(n_bytes):
    """Return `copy(shared, at, array, from)`: n_bytes (4 or 16) to shared memory, behind this thread's back."""
    level = "cg" if n_bytes == 16 else "ca"
    text = f"cp.async.{level}.shared.global [$0], [$1], {n_bytes};"

    @intrinsic
    def copy(typing_context, target, target_at, source, source_at):
        def emit(context, builder, signature, arguments):
            to, origin = _copy_addresses(context, builder, signature, arguments)
            to = builder.ptrtoint(builder.addrspacecast(to, BYTE.as_pointer(SHARED)), WORD)
            origin = builder.ptrtoint(builder.addrspacecast(origin, BYTE.as_pointer(GLOBAL)), LONG)
            _assembly(builder, VOID, [to, origin], text, "r,l,~{memory}", True)
            return context.get_dummy_value()

        return types.void(target, types.int64, source, types.int64), emit

    return copy


def copy_now(n_bytes):
    """Return the same through registers, for cards without asynchronous copies."""
    vector = ir.VectorType(WORD, n_bytes // 4)

    @intrinsic
    def copy(typing_context, target, target_at, source, source_at):
        def emit(context, builder, signature, arguments):
            to, origin = _copy_addresses(context, builder, signature, arguments)
            value = builder.load(builder.bitcast(origin, vector.as_pointer()), align=n_bytes)
            builder.store(value, builder.bitcast(to, vector.as_pointer()), align=n_bytes)
            return context.get_dummy_value()

        return types.void(target, types.int64, source, types.int64), emit

    return copy


def _flag(text, constraints, with_value):
    def emit(context, builder, signature, arguments):
        address = _address(context, builder, signature.args[0], arguments[0], builder.mul(arguments[1], ir.Constant(LONG, 4)), BYTE)
        address = builder.ptrtoint(builder.addrspacecast(address, BYTE.as_pointer(GLOBAL)), LONG)
        values = [address, *arguments[2:]]
        result = _assembly(builder, VOID if with_value else WORD, values, text, constraints, True)
        return context.get_dummy_value() if with_value else result

    return emit


@intrinsic
def load_acquire(typing_context, array, i):
    """uint32 word i of a flag array, with everything its writer released; system scope."""
    return types.uint32(array, types.int64), _flag("ld.acquire.sys.global.u32 $0, [$1];", "=r,l,~{memory}", False)


@intrinsic
def store_release(typing_context, array, i, value):
    """Write uint32 word i of a flag array behind all earlier writes; system scope."""
    signature = types.void(array, types.int64, types.uint32)
    return signature, _flag("st.release.sys.global.u32 [$0], $1;", "l,r,~{memory}", True)


@intrinsic
def clock_ns(typing_context):
    """The card's clock in nanoseconds, int64."""

    def emit(context, builder, signature, arguments):
        return _assembly(builder, LONG, [], "mov.u64 $0, %globaltimer;", "=l", True)

    return types.int64(), emit


@intrinsic
def sleep_ns(typing_context, n):
    """Give the multiprocessor away for about n nanoseconds."""

    def emit(context, builder, signature, arguments):
        _assembly(builder, VOID, arguments, "nanosleep.u32 $0;", "r", True)
        return context.get_dummy_value()

    return types.void(types.int32), emit
