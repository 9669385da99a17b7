"""Waiting on a card for the CPU pool: a kernel that spins until the pool has answered, and copies what it computed.

Where a layer has no jobs it leaves at once.  Else one thread of each block looks at `done` until it holds the layer's step; it leaves
without copying where `stop` says so, or when the card's clock has moved on by `bound` nanoseconds, and then writes why into `stop`, so
that nobody waits after it.  The job entries are the last of the layer's: their outputs lie in one piece.
Shapes: outputs float32 [job entries, H] of the mailbox; out float32 [entries and more, H].  Does not know: what is computed.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.seam import Target, clock_ns, jit, kernel, launch_dependents, load_acquire, sleep_ns, store_release, wait_for_dependency
from strata.cuda.machine.stores import copy_floats
from strata.cuda.tier.dispatching import ALL_ENTRIES, JOBS, OWN_ENTRIES, STEP, Dispatched
from strata.cuda.tier.mailbox import GAVE_UP, RUNNING, Mailbox

THREADS = 256
MOST_BLOCKS = 128
FLOATS_PER_BLOCK = 16 * THREADS
REST_NS = 100
PATIENCE_NS = 120_000_000_000
"""How long a kernel waits for the pool."""


@jit
def wait_for_answer(layer, step, done, stop, bound):
    """Return whether the pool has answered a step."""
    until = clock_ns() + bound
    while np.int32(load_acquire(done, layer)) != step:
        if np.int32(load_acquire(stop, 0)) != RUNNING:
            return False
        if clock_ns() >= until:
            store_release(stop, 0, np.uint32(GAVE_UP))
            return False
        sleep_ns(np.int32(REST_NS))
    return True


@cache
def meet_kernel(target: Target):
    """Return kernel(layer, sizes, done, stop, bound, outputs, out, width); any number of blocks of THREADS."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(layer, sizes, done, stop, bound, outputs, out, width):
        answered = cuda.shared.array(1, np.int32)
        go_on()
        wait_before()
        if sizes[JOBS] == 0:
            return
        thread = np.int32(cuda.threadIdx.x)
        if thread == 0:
            answered[0] = np.int32(1 if wait_for_answer(layer, sizes[STEP], done, stop, bound) else 0)
        cuda.syncthreads()
        if answered[0] == 0:
            return
        own = sizes[OWN_ENTRIES]
        n_fours = np.int32((sizes[ALL_ENTRIES] - own) * width >> 2)
        first, n_threads = np.int32(np.int32(cuda.blockIdx.x) * THREADS + thread), np.int32(np.int32(cuda.gridDim.x) * THREADS)
        copy_floats(outputs, out, 4 * np.int64(own) * width, n_fours, first, n_threads)

    return run


class MeetLaunch(Launch):
    """A launch of the waiting kernel for the stage's layer number `place`."""

    def __init__(self, place: int, *arguments) -> None:
        self.place = place
        super().__init__(*arguments)


def launch_meet(
    device: CudaDevice, mailbox: Mailbox, place: int, n_rows: int, dispatched: Dispatched, out, bound_ns: int = PATIENCE_NS, programmatic: bool = False
) -> MeetLaunch:
    """Wait for the jobs of the stage's layer number `place` and copy their outputs behind the card's own."""
    c, most = mailbox.config, n_rows * mailbox.config.n_used * mailbox.config.hidden
    shape = Shape((max(1, min(MOST_BLOCKS, most // FLOATS_PER_BLOCK)), 1), THREADS)
    arguments = (
        np.int32(place), dispatched.sizes, mailbox.done.card, mailbox.stop.card, np.int64(bound_ns), mailbox.areas(n_rows).outputs.card, out, np.int32(c.hidden),
    )
    return MeetLaunch(place, device, meet_kernel(device.target), shape, arguments, programmatic)


def send_served(launches: Sequence[Launch], serve: Callable[[int], None]) -> None:
    """Send launches in order; ahead of one that waits for the pool, serve(its layer's number) has the answer made."""
    for launch in launches:
        if isinstance(launch, MeetLaunch):
            serve(launch.place)
        launch.go()
