"""One layer's meeting with the CPU pool in one compiled call: wait for its message, have its jobs computed, answer.

The call is made before the message comes, so that the card waits for nothing of Python's.  The lists are copied first: a kernel that
gives up meanwhile lets the next layer write there, and jobs trust what lists say.  Shapes and words as in mailbox.py.
Does not know: how jobs are computed, what a message that does not come means.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.atomics import clock_ns, load_flag, pause, store_flag
from strata.cuda.tier.mailbox import FIELDS, FLAG, JOB_ENTRIES, N_JOBS, N_ROWS, RUNNING
from strata.numerics.cpu import jit, kernel

SILENT, STOPPED = -1, -2
"""No message came in time; kernels wait no more."""
WAITED, COMPUTED = range(2)
"""Words of `spent`: nanoseconds until the message came, and from there to the answer."""


@jit
def copied(list_of, n):
    """The first n words of a list that somebody else may overwrite."""
    own = np.empty(n, np.int32)
    for i in range(n):
        own[i] = list_of[i]
    return own


@jit
def has_message(headers, at, step, until):
    """Wait for a layer's message of a step, its words from `at` on; False where it does not come before a moment."""
    while load_flag(headers, at + FLAG) >> 1 != step:
        pause()
        if clock_ns() > until:
            return False
    return True


@cache
def server(run):
    """Return the kernel that serves one layer with the jobs of `run` (as `strata.host.pool_jobs.CompiledJobs` says).

    kernel(place, step, wait_ns, headers, stop, done, job_experts, job_starts, job_rows, values, outputs, width, control, addresses, lines,
    spans, pages, room, served, spent): the layer's number in the stage; served int32 [jobs or more] becomes the experts computed, spent
    int64 [2] grows.  Returns how many, 0 where the message asks for none, SILENT, or STOPPED.
    """

    @kernel
    def serve(
        place, step, wait_ns, headers, stop, done, job_experts, job_starts, job_rows, values, outputs, width,
        control, addresses, lines, spans, pages, room, served, spent,
    ):
        at, began = place * FIELDS, clock_ns()
        came = has_message(headers, at, step, began + wait_ns)
        reached = clock_ns()
        spent[WAITED] += reached - began
        if not came:
            return SILENT
        if load_flag(headers, at + FLAG) & 1 == 0:
            return 0
        n_rows, n_jobs, n_entries = np.int64(headers[at + N_ROWS]), np.int64(headers[at + N_JOBS]), np.int64(headers[at + JOB_ENTRIES])
        experts, starts, rows = copied(job_experts, n_jobs), copied(job_starts, n_jobs + 1), copied(job_rows, n_entries)
        if load_flag(stop, 0) != RUNNING:
            return STOPPED
        x, out = values[: n_rows * width].reshape((n_rows, width)), outputs[: n_entries * width].reshape((n_entries, width))
        run(control, addresses, experts, starts, rows, lines, x, spans, out, pages, room)
        store_flag(done, place, step)
        spent[COMPUTED] += clock_ns() - reached
        for i in range(n_jobs):
            served[i] = experts[i]
        return n_jobs

    return serve
