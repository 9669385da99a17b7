"""Where the workers of a team may run: on every core that the process may use, except the submitter's.

A kernel that wakes a worker likes to put it on the core of the thread that woke it; a virtual machine's does so even
while other cores idle, because it takes a halted core for one that the host has taken away.  Then two threads share a
core for the whole job.  So whenever a submitter finds itself on another core than the last one, it takes that core out
of its workers' masks.  Does not know: jobs.
"""

from strata.cpu_pool.atomics import current_core, set_cores
from strata.cpu_pool.job import (
    ALLOWED, CORES, KEEPS_OFF, LINE_WORDS, MASK_WORDS, N_WORKERS, SUBMITTER_CORE, THREAD,
)
from strata.numerics.cpu import jit


@jit
def keep_off(control, core):
    """Let every worker run on all allowed cores but `core`."""
    for word in range(MASK_WORDS):
        control[CORES + word] = control[ALLOWED + word]
    control[CORES + core // 64] &= ~(1 << core % 64)
    for index in range(control[N_WORKERS]):
        set_cores(control, CORES, MASK_WORDS, control[THREAD + LINE_WORDS * index])


@jit
def keep_off_this_core(control):
    """Keep the workers off the core that runs this, where the team does that and has not done it yet."""
    core = current_core()
    if control[SUBMITTER_CORE] != core + 1 and control[KEEPS_OFF] != 0 and core < 64 * MASK_WORDS:
        control[SUBMITTER_CORE] = core + 1
        keep_off(control, core)
