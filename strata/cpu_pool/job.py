"""Jobs of a team: the control block's words, how a piece is claimed, run and given back, how threads wait.

Words that different threads write stand in different cache lines (8 words each).  The heart is `STATE`, one word

    pieces that nobody has claimed << 32  |  pieces being run

which only changes by compare-and-exchange or atomic addition.  A claim moves one piece from the upper half to the lower
in a single step, and only the holder of a claim reads the job's words (function, arguments, sizes).  So these words, and
the arguments on the submitter's stack behind them, are needed exactly while `STATE` is not zero: the submitter waits for
zero, and a worker that arrives late finds nothing to claim and has touched nothing.  A `STATE` value gone stale in a
worker's hand does no harm either: where the exchange succeeds, the word names an unclaimed piece of the present job.

A thread without work spins for `SPIN_NS`, then sleeps in the kernel: workers on `SEQUENCE`, which the submitter counts up
and wakes only where `SLEEPERS` is not zero; a submitter whose last pieces are elsewhere on `FINISHED`, which leaves its
core to the thread that it waits for.  A block of zeros means "no workers".  Does not know: threads, types of arguments.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from strata.cpu_pool.atomics import (
    BYTES, WORD, add, clock_ns, compare_exchange, futex_wait, futex_wake, load, pause, yield_core,
)
from strata.numerics.cpu import jit

LINE_WORDS = 8
LOCK = 0
STATE = 8
SEQUENCE, SLEEPERS = 16, 17
FINISHED, WAITING = 24, 25
CODE, ARGUMENTS, N_ITEMS, GRAIN, N_PIECES = 32, 33, 34, 35, 36
N_WORKERS, PROCESS, SPIN_NS, STOP, PLACEMENT = 40, 41, 42, 43, 44
SUBMITTER_CORE = 48  # number of the core + 1
ALLOWED, CORES, MASK_WORDS = 56, 72, 16  # one bit for each of at most 1024 cores
PIECES_RUN, THREAD, CORE = 88, 89, 90  # words of the first worker; one line for each from here on

ONE_UNCLAIMED = 1 << 32
MOST_PIECES = (1 << 31) - 1
PAUSES_PER_LOOK_AT_THE_CLOCK = 32

PIECE_FUNCTION = ir.FunctionType(ir.VoidType(), [BYTES, WORD, WORD])


@intrinsic
def run_piece(typing_context, code, arguments, begin, end):
    """Call the compiled piece function at address `code` with the address of its arguments and a range of items."""

    def emit(context, builder, signature, values):
        function = builder.inttoptr(values[0], PIECE_FUNCTION.as_pointer())
        builder.call(function, [builder.inttoptr(values[1], BYTES), *values[2:]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), emit


@jit
def claim(control):
    """Claim a piece of the present job: int64, how many were unclaimed before; 0 where there was none."""
    while True:
        state = load(control, STATE)
        n_unclaimed = state >> 32
        if n_unclaimed == 0:
            return n_unclaimed
        if compare_exchange(control, STATE, state, state - ONE_UNCLAIMED + 1):
            return n_unclaimed


@jit
def give_back(control):
    """Give a claim back after running its piece; wakes the submitter where that ended the job while it slept."""
    if add(control, STATE, -1) == 1 and load(control, WAITING) != 0:
        add(control, FINISHED, 1)
        futex_wake(control, FINISHED, 1)


@jit
def run_claimed(control):
    """Run pieces in ascending order as long as some can be claimed; return how many this thread ran."""
    n_run = 0
    while True:
        n_unclaimed = claim(control)
        if n_unclaimed == 0:
            return n_run
        grain = control[GRAIN]
        begin = (control[N_PIECES] - n_unclaimed) * grain
        end = begin + grain
        if end > control[N_ITEMS]:
            end = control[N_ITEMS]
        run_piece(control[CODE], control[ARGUMENTS], begin, end)
        give_back(control)
        n_run += 1


@jit
def is_wanted(control):
    return load(control, STATE) >> 32 != 0 or load(control, STOP) != 0


@jit
def wait_for_work(control, spin_ns):
    """Return when a piece can be claimed, when the team stops, or for no reason; spins first, then sleeps.

    The core is offered to others while spinning: the kernel may have put this thread on the submitter's own core.
    """
    began = clock_ns()
    while clock_ns() - began < spin_ns:
        for _ in range(PAUSES_PER_LOOK_AT_THE_CLOCK):
            if is_wanted(control):
                return
            pause()
        yield_core()
    add(control, SLEEPERS, 1)
    seen = load(control, SEQUENCE)
    if not is_wanted(control):
        futex_wait(control, SEQUENCE, seen)
    add(control, SLEEPERS, -1)


@jit
def wake_workers(control, n):
    """Tell workers that a piece can be claimed or the team stops; wakes at most n of those that sleep."""
    add(control, SEQUENCE, 1)
    n_sleeping = load(control, SLEEPERS)
    if n_sleeping > 0:
        futex_wake(control, SEQUENCE, n)


@jit
def wait_for_end(control):
    """Return when every piece of the job has been given back."""
    began = clock_ns()
    while clock_ns() - began < control[SPIN_NS]:
        for _ in range(PAUSES_PER_LOOK_AT_THE_CLOCK):
            if load(control, STATE) == 0:
                return
            pause()
    add(control, WAITING, 1)
    while True:
        seen = load(control, FINISHED)
        if load(control, STATE) == 0:
            break
        futex_wait(control, FINISHED, seen)
    add(control, WAITING, -1)
