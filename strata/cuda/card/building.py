"""Filling a folder of compiled kernels with several processes.

The list of kernels is made first, in one process; the others are forked from it and take one kernel after the other from it.
Where processes cannot be forked there is one.  Does not know: which kernels a model needs.
"""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from strata.cuda.card.compiling import compile_kernel
from strata.cuda.card.kernel_files import kept_name, pack, ready_name, unpack
from strata.numerics.entries import read_entry, write_entry

PAUSE_S = 0.1
"""Seconds between two looks at the processes."""

Kernel = tuple
"""(dispatcher, argument types)."""


@dataclass(frozen=True, slots=True)
class Built:
    """What came of it: files wanted (one kernel may serve two shapes), there before, compiled; their bytes, seconds, what failed and why."""

    n_wanted: int
    n_there: int
    n_compiled: int
    n_bytes: int
    seconds: float
    failures: tuple[str, ...]


class KernelFolder:
    """A folder to be filled: with `portable` one for STRATA_CUDA_KERNELS, else this machine's own."""

    def __init__(self, folder: Path, portable: bool, capability: tuple[int, int]) -> None:
        self.folder, self.capability = folder, capability
        self._name_of = ready_name if portable else kept_name

    def path_of(self, kernel: Kernel) -> Path:
        return self.folder / self._name_of(*kernel, self.capability)

    def holds(self, kernel: Kernel) -> bool:
        """Whether a kernel is there, whole."""
        content = read_entry(self.path_of(kernel))
        return content is not None and unpack(content, kernel[1], self.capability) is not None

    def compile(self, kernel: Kernel) -> None:
        """Compile a kernel and write its file."""
        compiled = compile_kernel(*kernel, self.capability)
        write_entry(self.path_of(kernel), pack(compiled, kernel[1], self.capability))


def build(target: KernelFolder, kernels: Sequence[Kernel], n_processes: int, show: Callable[[int, int], None]) -> Built:
    """Compile what a folder does not hold; `show(done, all)` is called now and then."""
    begin = time.monotonic()
    wanted = {target.path_of(kernel): kernel for kernel in kernels}
    missing = [kernel for kernel in wanted.values() if not target.holds(kernel)]
    n_processes = min(n_processes, len(missing))
    if n_processes > 1 and "fork" in multiprocessing.get_all_start_methods():
        failures = _build_together(target, missing, n_processes, show)
    else:
        failures = []
        for i, kernel in enumerate(missing):
            show(i, len(missing))
            failures += _attempt(target, kernel)
    n_bytes = sum(path.stat().st_size for path in wanted if path.is_file())
    return Built(len(wanted), len(wanted) - len(missing), len(missing) - len(failures), n_bytes, time.monotonic() - begin, tuple(failures))


def _attempt(target: KernelFolder, kernel: Kernel) -> list[str]:
    """Compile one kernel; return what went wrong."""
    try:
        target.compile(kernel)
    except Exception as error:  # whatever a compiler raises must not end the others
        return [f"{kernel[0].py_func.__module__}.{kernel[0].py_func.__qualname__}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"]
    return []


def _build_together(target: KernelFolder, missing: list[Kernel], n_processes: int, show: Callable[[int, int], None]) -> list[str]:
    context = multiprocessing.get_context("fork")
    taken, results = context.Value("q", 0), context.SimpleQueue()
    workers = [context.Process(target=_work, args=(target, missing, taken, results), daemon=True) for _ in range(n_processes)]
    for worker in workers:
        worker.start()
    failures, n_done = [], 0
    while any(worker.is_alive() for worker in workers) or not results.empty():
        while not results.empty():
            failures += results.get()
            n_done += 1
        show(n_done, len(missing))
        time.sleep(PAUSE_S)
    if n_done < len(missing):
        codes = sorted({worker.exitcode for worker in workers if worker.exitcode})
        failures += [f"{len(missing) - n_done} kernels: a process ended with exit code {codes}"]
    return failures


def _work(target: KernelFolder, missing: list[Kernel], taken, results) -> None:
    while True:
        with taken.get_lock():
            number, taken.value = taken.value, taken.value + 1
        if number >= len(missing):
            return
        results.put(_attempt(target, missing[number]))
