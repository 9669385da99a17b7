"""Fork and join inside nogil Numba code: `fork(control, body, n_items, grain, arguments)`.

    @jit                                              # strata.numerics.cpu.jit, or njit(nogil=True)
    def body(begin, end, arguments):                  # a global; begin, end: int64
        rows, out = arguments
        ...                                           # write only what belongs to the items [begin, end)

    @kernel
    def entry(control, rows, out):
        fork(control, body, rows.shape[0], 16, (rows, out))

`control` is `Team.control` (int64 words).  `body` runs over [0, n_items) in ranges of at most `grain` items, each item
once, on the calling thread and on the team's workers; `fork` returns when all have been done and their writes can be
seen.  Which thread runs which range is not determined, so a body must write disjoint results; then they do not depend on
the number of threads.  `arguments` is a tuple of arrays and scalars; it is read in place, not copied.

Runs inline, range after range in ascending order, where there are no workers: on a team of one thread, a closed one,
one that is busy with another thread's fork (or an outer fork of this thread), and in a child process after an os.fork.
A body must not raise: its status is ignored, a range that raised simply ends there.

How: the intrinsic emits a private function that unpacks the tuple and calls the compiled body, and hands its address and
the tuple's to `submit`.  Both are taken when the code runs, so callers can be kept in a cache on disk.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from strata.cpu_pool.atomics import BYTES, WORD, compare_exchange, load, process_id, store
from strata.cpu_pool.job import (
    ARGUMENTS, CODE, GRAIN, LOCK, MOST_PIECES, N_ITEMS, N_PIECES, N_WORKERS, ONE_UNCLAIMED, PIECE_FUNCTION, PROCESS,
    STATE, run_claimed, run_piece, wait_for_end, wake_workers,
)
from strata.cpu_pool.placement import make_way
from strata.numerics.cpu import jit


@jit
def has_free_workers(control):
    """Take the team for one job; False where it has no workers, is busy or closed, or belongs to another process."""
    if control[N_WORKERS] == 0 or load(control, LOCK) != 0 or control[PROCESS] != process_id():
        return False
    return compare_exchange(control, LOCK, 0, 1)


@jit
def run_inline(code, arguments, n_items, grain):
    for begin in range(0, n_items, grain):
        end = begin + grain
        if end > n_items:
            end = n_items
        run_piece(code, arguments, begin, end)


@jit
def submit(control, code, arguments, n_items, grain):
    """Run one job on this thread and the team's workers; sizes in items, `code` and `arguments` are addresses."""
    if grain * MOST_PIECES < n_items or grain < 1:
        grain = n_items // MOST_PIECES + 1
    n_pieces = (n_items + grain - 1) // grain
    if n_pieces < 2 or not has_free_workers(control):
        run_inline(code, arguments, n_items, grain)
        return
    make_way(control)
    control[CODE], control[ARGUMENTS] = code, arguments
    control[N_ITEMS], control[GRAIN], control[N_PIECES] = n_items, grain, n_pieces
    store(control, STATE, n_pieces * ONE_UNCLAIMED)
    wake_workers(control, n_pieces - 1)
    run_claimed(control)
    wait_for_end(control)
    store(control, LOCK, 0)


def _define_piece(context, module, body, signature):
    """Define the private function `void (arguments, begin, end)` that calls the compiled body; return it."""
    piece = ir.Function(module, PIECE_FUNCTION, module.get_unique_name("fork_piece"))
    piece.linkage = "internal"
    builder = ir.IRBuilder(piece.append_basic_block("entry"))
    packed, begin, end = piece.args
    arguments_type = context.get_value_type(signature.args[2])
    arguments = builder.load(builder.bitcast(packed, arguments_type.as_pointer()))
    context.call_internal_no_propagate(builder, body.fndesc, signature, [begin, end, arguments])
    builder.ret_void()
    return piece


@intrinsic
def fork(typing_context, control, body, n_items, grain, arguments):
    """Run `body` over [0, n_items) on the team's threads; see the module's text."""
    body_signature = body.get_call_type(typing_context, (types.int64, types.int64, arguments), {})
    submit_type = typing_context.resolve_value_type(submit)
    submit_signature = submit_type.get_call_type(typing_context, (control,) + (types.int64,) * 4, {})

    def emit(context, builder, signature, values):
        compiled = body.dispatcher.overloads[body_signature.args]
        submitter = submit.overloads[submit_signature.args]
        context.add_linking_libs([compiled.library, submitter.library])
        piece = _define_piece(context, builder.module, compiled, body_signature)
        packed = cgutils.alloca_once_value(builder, values[4])
        addresses = [builder.ptrtoint(pointer, WORD) for pointer in (piece, builder.bitcast(packed, BYTES))]
        context.call_internal(
            builder, submitter.fndesc, submit_signature, [values[0], *addresses, values[2], values[3]]
        )
        return context.get_dummy_value()

    return types.void(control, body, types.int64, types.int64, arguments), emit
