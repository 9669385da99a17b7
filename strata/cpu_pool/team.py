"""A team of threads for fork and join inside nogil Numba code.

    with Team(2) as team:
        entry(team.control, rows, out)        # calls strata.cpu_pool.fork.fork(control, ...)

The calling thread is the first member; the others are daemon threads of this process that live in one nogil function,
spin for `spin_us` after each job and then sleep without using the CPU.  A team belongs to whoever opened it (a device)
and is passed down; there is no default one.  A team that is dropped, closed, or left behind at the interpreter's exit
stops its threads, after which `control` still works: everything runs on the caller.  Does not know: what is computed.
"""

import os
import threading
import time
import weakref

import numpy as np
from numba import types

from strata.cpu_pool.atomics import HAS_FUTEX, compare_exchange, load, store
from strata.cpu_pool.job import (
    ALLOWED, CORE, LINE_WORDS, LOCK, N_WORKERS, PIECES_RUN, PLACEMENT, PROCESS, SPIN_NS, STOP, SUBMITTER_CORE, THREAD,
    run_claimed, wait_for_work, wake_workers,
)
from strata.cpu_pool.placement import ANYWHERE, KEEP_OFF, MOST_CORES, OWN_CORES, core_here
from strata.errors import DeviceError, UsageError
from strata.numerics.cpu import kernel

MOST_THREADS = 1024
CONTROL = types.Array(types.int64, 1, "C")


@kernel
def work(control, index):
    """Run pieces of the team's jobs until it stops; `index` counts workers from 0.

    A worker that was woken too late for a job spins too: it is there for the next one.
    """
    spin_ns = 0
    while load(control, STOP) == 0:
        wait_for_work(control, spin_ns)
        control[PIECES_RUN + LINE_WORDS * index] += run_claimed(control)
        spin_ns = control[SPIN_NS]


@kernel
def pieces_run(control):
    """Pieces that all workers have run so far."""
    total = 0
    for index in range(control[N_WORKERS]):
        total += control[PIECES_RUN + LINE_WORDS * index]
    return total


@kernel
def stop(control):
    """Stop the workers unless a job is running; return whether they were told.  The team stays locked for ever."""
    if not compare_exchange(control, LOCK, 0, 1):
        return False
    store(control, STOP, 1)
    wake_workers(control, MOST_THREADS)
    return True


def _enter(control: np.ndarray, index: int, core: int | None, all_started: threading.Barrier) -> None:
    control[THREAD + LINE_WORDS * index] = threading.get_native_id()
    if core is not None:
        os.sched_setaffinity(0, {core})
    all_started.wait()
    work(control, index)


def _close(control: np.ndarray, threads: tuple[threading.Thread, ...]) -> None:
    if control[PROCESS] != os.getpid() or not threads:
        return
    while not stop(control):
        time.sleep(0.0005)
    for thread in threads:
        thread.join()


def _new_control(n_workers: int, spin_us: int) -> np.ndarray:
    """Return zeroed control words on a cache line's boundary: int64 [48 + 8 * n_workers]."""
    n_words = PIECES_RUN + LINE_WORDS * n_workers
    words = np.zeros(n_words + LINE_WORDS, np.int64)
    first = -(words.ctypes.data // 8) % LINE_WORDS
    control = words[first:first + n_words]
    control[N_WORKERS], control[PROCESS], control[SPIN_NS] = n_workers, os.getpid(), spin_us * 1000
    return control


def _allow(control: np.ndarray, cores: list[int]) -> None:
    """Set the bits of the cores that workers may use; with one core only, workers share it with the submitter."""
    for core in cores:
        control[ALLOWED + core // 64] |= np.int64(1) << np.int64(core % 64)
    control[PLACEMENT] = KEEP_OFF if len(cores) > 1 else ANYWHERE


def _own_cores(control: np.ndarray, cores: list[int]) -> list[int]:
    """Give each worker a core, from the one behind the caller's on, the caller's own last; return them."""
    here = core_here()
    behind = [core for core in cores if core > here] + [core for core in cores if core <= here]
    found = [behind[index % len(behind)] for index in range(control[N_WORKERS])]
    control[CORE::LINE_WORDS][: len(found)] = found
    control[SUBMITTER_CORE], control[PLACEMENT] = here + 1, OWN_CORES
    return found


class Team:
    """Threads that share the pieces of a fork.

    `n_threads` counts the caller too.  With `pin` each worker has a core of its own and changes it with the caller where that
    comes to it; otherwise workers may run everywhere but on the caller's core.
    `spin_us` is how long an idle worker, and a caller waiting for the last piece, spins before it sleeps.  `control`
    (int64 words) goes into compiled code.  Raises UsageError for a count out of range and DeviceError where the
    platform has no futex.
    """

    def __init__(self, n_threads: int, pin: bool = False, spin_us: int = 50) -> None:
        if not 1 <= n_threads <= MOST_THREADS:
            raise UsageError(f"n_threads={n_threads}", "a team has 1 to 1024 threads", "use the number of cores")
        if n_threads > 1 and not HAS_FUTEX:
            raise DeviceError(f"n_threads={n_threads}", "worker threads need Linux's futex here", "use 1 thread")
        self.n_threads = n_threads
        self.control = _new_control(n_threads - 1, spin_us)
        self._threads = self._start(pin)
        self._finalizer = weakref.finalize(self, _close, self.control, self._threads)

    def _start(self, pin: bool) -> tuple[threading.Thread, ...]:
        if self.n_threads == 1:
            return ()
        work.compile((CONTROL, types.int64))
        stop.compile((CONTROL,))
        cores = sorted(core for core in os.sched_getaffinity(0) if core < MOST_CORES)
        own = _own_cores(self.control, cores) if pin else [None] * (self.n_threads - 1)
        if not pin:
            _allow(self.control, cores)
        all_started = threading.Barrier(self.n_threads)
        threads = []
        for index, core in enumerate(own):
            arguments = (self.control, index, core, all_started)
            threads.append(threading.Thread(target=_enter, args=arguments, daemon=True))
            threads[-1].start()
        all_started.wait()
        return tuple(threads)

    @property
    def n_pieces_by_workers(self) -> tuple[int, ...]:
        """How many pieces each worker has run so far; a worker that is running adds its own when it is done."""
        return tuple(int(n) for n in self.control[PIECES_RUN::LINE_WORDS][:self.n_threads - 1])

    @property
    def n_pieces_run(self) -> int:
        """The same, of all workers together."""
        return pieces_run(self.control)

    def close(self) -> None:
        """Stop and join the workers, after a running job has ended; closing again does nothing."""
        self._finalizer()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
