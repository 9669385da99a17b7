"""Compiled kernels on disk: a folder of this machine's own, and a folder of ready ones that somebody brought.

The *kept* folder (`cuda-kernels` beside the host's kernels) is filled as kernels are compiled.  Its keys hold everything that
could change the machine code: the stamp over the source files, the live function with all that it refers to, argument types,
launch bounds, compute capability, and the versions of all compilers.

The *ready* folder is named by STRATA_CUDA_KERNELS and only read (`strata kernels --folder` makes one, on any machine).  Its
keys hold the source stamp, what the function closes over, argument types, launch bounds and capability: neither the
compilers' versions nor bytecode, so that a folder made under another Python and another CUDA is found.  Each file says which
compilers made it.  Whoever sets the variable vouches that the folder was made from these sources by a compiler to be
trusted; after any edit of a kernel's sources its files are no longer found, and kernels are compiled as ever.

A kernel that has no stable key is compiled each time and says so once.  Does not know: drivers, cards.
"""

import hashlib
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

from strata.cuda.card.compiling import COMPILING, Compiled, Resources, compile_kernel, compilers, why_no_compiler
from strata.errors import UsageError
from strata.numerics.entries import LIMIT_BYTES, base_folder, forget_oldest, read_entry, write_entry
from strata.numerics.fingerprint import fingerprint, portable_fingerprint
from strata.numerics.sources import PACKAGE, source_stamp

LOG = logging.getLogger(__name__)
READY_FOLDER = "STRATA_CUDA_KERNELS"
LAYOUT = 1
"""Counts changes of the files' content and of the keys."""
KEY_LETTERS = 40


def kept_folder() -> Path:
    """Return the folder that is filled as kernels are compiled; it need not exist."""
    return base_folder() / "cuda-kernels"


def ready_folder() -> Path | None:
    """Return the folder of ready kernels, None where none is named; raises UsageError where it is not there."""
    named = os.environ.get(READY_FOLDER)
    if not named:
        return None
    if not Path(named).is_dir():
        raise UsageError(f"{READY_FOLDER}={named}", "there is no such folder", "make one with `strata kernels --folder`, or unset it")
    return Path(named)


def _packages(function) -> frozenset[str]:
    return frozenset({PACKAGE, function.__module__.partition(".")[0]})


@cache
def _ready_part(dispatcher) -> str:
    """Return the part of a key that does not depend on compilers; raises as `source_stamp` and `fingerprint` do."""
    function = dispatcher.py_func
    stamp = source_stamp(function.__module__, Path(function.__code__.co_filename))
    closed = portable_fingerprint(function, _packages(function))
    return repr((LAYOUT, stamp, closed, dispatcher.targetoptions.get("launch_bounds")))


@cache
def _live_part(dispatcher) -> str:
    return fingerprint(dispatcher, _packages(dispatcher.py_func))


def _file_name(dispatcher, *key: object) -> str:
    name = dispatcher.py_func.__qualname__.replace("<locals>.", "").replace("<", "").replace(">", "")
    return f"{name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:KEY_LETTERS]}.cubin"


def ready_name(dispatcher, types: tuple, capability: tuple[int, int]) -> str:
    """Return the file name of a kernel in a ready folder; raises OSError, SyntaxError, TypeError where it has no stable key."""
    return _file_name(dispatcher, _ready_part(dispatcher), [str(t) for t in types], capability)


def kept_name(dispatcher, types: tuple, capability: tuple[int, int]) -> str:
    """Return the file name of a kernel in the kept folder; raises as `ready_name`, and where there is no compiler."""
    made_by = (sys.implementation.cache_tag, *compilers())
    return _file_name(dispatcher, _ready_part(dispatcher), _live_part(dispatcher), [str(t) for t in types], capability, made_by)


def pack(compiled: Compiled, types: tuple, capability: tuple[int, int]) -> bytes:
    """Return the content of a kernel's file: a line of JSON, then the cubin."""
    r = compiled.resources
    head = {
        "entry": compiled.entry, "types": [str(t) for t in types], "capability": list(capability), "made_by": list(compiled.made_by),
        "resources": [r.registers, r.stack_bytes, r.spill_store_bytes, r.spill_load_bytes],
    }
    return json.dumps(head).encode() + b"\n" + compiled.cubin


def unpack(content: bytes, types: tuple, capability: tuple[int, int]) -> Compiled | None:
    """Return what a file holds, None where it is of another kernel."""
    line, _, cubin = content.partition(b"\n")
    head = json.loads(line)
    if head["types"] != [str(t) for t in types] or head["capability"] != list(capability):
        return None
    return Compiled(cubin, head["entry"], Resources(*head["resources"]), tuple(head["made_by"]))


class KernelFiles:
    """Compiled kernels by dispatcher, types and capability: from the ready folder, else the kept one, else the compiler.

    Counts what came from where; a kernel is compiled once, whatever the number of threads that ask.
    """

    def __init__(self, ready: Path | None, kept: Path | None) -> None:
        self.ready, self.kept = ready, kept
        self.n_ready = self.n_kept = self.n_compiled = 0
        self._lock = threading.Lock()
        self._complaints: set[str] = set()

    def find(self, dispatcher, types: tuple, capability: tuple[int, int]) -> Compiled | None:
        """Return a kernel from disk, or None."""
        for folder, name_of in ((self.ready, ready_name), (self.kept, kept_name)):
            path = self._path(folder, name_of, dispatcher, types, capability)
            content = None if path is None else self._try(lambda p=path: read_entry(p, mark=p.parent == self.kept))
            compiled = None if content is None else unpack(content, types, capability)
            if compiled is not None:
                self.n_ready += folder is self.ready
                self.n_kept += folder is self.kept
                return compiled
        return None

    def get(self, dispatcher, types: tuple, capability: tuple[int, int]) -> Compiled:
        """Return a kernel from disk, or compiled now and kept; raises what the compiler raises."""
        with self._lock, COMPILING:
            found = self.find(dispatcher, types, capability)
            if found is not None:
                return found
            if self.ready is not None:
                self._complain(f"{self.ready} does not hold every kernel that is needed: it was made for another model or from other sources")
            compiled = compile_kernel(dispatcher, types, capability)
            self.n_compiled += 1
            path = self._path(self.kept, kept_name, dispatcher, types, capability)
            if path is not None:
                self._try(lambda: write_entry(path, pack(compiled, types, capability)))
                self._try(lambda: forget_oldest(path.parent, LIMIT_BYTES))
            return compiled

    def _path(self, folder: Path | None, name_of: Callable, *kernel) -> Path | None:
        name = None if folder is None else self._try(lambda: name_of(*kernel), kernel[0].py_func.__qualname__)
        return None if name is None else folder / name

    def _try(self, action: Callable, subject: str = "compiled kernels"):
        """Run a step; where it fails for a reason of files or kinds of objects, say so once."""
        try:
            return action()
        except (ImportError, OSError, SyntaxError, TypeError, ValueError) as failure:
            self._complain(f"{subject}: not kept on disk: {failure}")
            return None

    def _complain(self, text: str) -> None:
        if text not in self._complaints:
            self._complaints.add(text)
            LOG.warning("%s", text)


@cache
def kernel_files() -> KernelFiles:
    """Return this process's kernels on disk, in the folders that the environment names; ready ones only where there is no compiler."""
    return KernelFiles(ready_folder(), kept_folder() if why_no_compiler() is None else None)
