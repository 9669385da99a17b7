"""Where the workers of a team may run: everywhere but on the submitter's core, or each on a core of its own.

A kernel that wakes a worker likes to put it on the core of the thread that woke it; a virtual machine's does so even
while other cores idle, because it takes a halted core for one that the host has taken away.  Then two threads share a
core for the whole job.  So whenever a submitter finds itself on another core than the last one, workers make way for it:

    KEEP_OFF    that core is taken out of all workers' masks, who may run on every other one
    OWN_CORES   the worker whose core it is moves to the one that the submitter left: where there are as many threads as
                cores, each has one to itself, whatever the kernel would like

Does not know: jobs.
"""

from strata.cpu_pool.atomics import current_core, set_cores
from strata.cpu_pool.job import (
    ALLOWED, CORE, CORES, LINE_WORDS, MASK_WORDS, N_WORKERS, PLACEMENT, SUBMITTER_CORE, THREAD,
)
from strata.numerics.cpu import jit, kernel

ANYWHERE, KEEP_OFF, OWN_CORES = 0, 1, 2
MOST_CORES = 64 * MASK_WORDS


@kernel
def core_here():
    """Number of the core that runs this."""
    return current_core()


@jit
def keep_off(control, core):
    """Let every worker run on all allowed cores but `core`."""
    for word in range(MASK_WORDS):
        control[CORES + word] = control[ALLOWED + word]
    control[CORES + core // 64] &= ~(1 << core % 64)
    for index in range(control[N_WORKERS]):
        set_cores(control, CORES, MASK_WORDS, control[THREAD + LINE_WORDS * index])


@jit
def leave(control, core, other):
    """Let the workers whose core is `core` run on `other` instead."""
    for word in range(MASK_WORDS):
        control[CORES + word] = 0
    control[CORES + other // 64] |= 1 << other % 64
    for index in range(control[N_WORKERS]):
        if control[CORE + LINE_WORDS * index] == core:
            control[CORE + LINE_WORDS * index] = other
            set_cores(control, CORES, MASK_WORDS, control[THREAD + LINE_WORDS * index])


@jit
def make_way(control):
    """Have workers make way for the thread that runs this, where the team does that and has not done it yet."""
    core = current_core()
    before = control[SUBMITTER_CORE] - 1
    if before == core or control[PLACEMENT] == ANYWHERE or core >= MOST_CORES:
        return
    control[SUBMITTER_CORE] = core + 1
    if control[PLACEMENT] == KEEP_OFF:
        keep_off(control, core)
    else:
        leave(control, core, before)
