"""Compiled kernels on disk, under a key that changes whenever the machine code could.

Numba's own cache is not safe for an engine whose promise is bits: it notices edits of the file that holds the function
only; two processes that compile different closures of one factory can exchange their files; and helper functions are
numbered per process, so machine code from two processes can carry one symbol for two different helpers, of which the
loader silently takes the first for both.  Here instead
  - the key of an entry is a SHA-256 over the source files (`sources`), the live function with everything it refers to
    (`fingerprint`), the argument types, compiler options, versions, and the CPU's name and features,
  - the key is the file's name, files are written aside and renamed, and a damaged one counts as absent,
  - symbols are numbered from a random start in each process (`SymbolNumbers`).

The folder is `kernels` in the folder of `entries`; what was used longest ago goes when it grows past LIMIT_BYTES.  A kernel that cannot be cached is compiled each time and says so
once in the log.  Does not know: what kernels compute.
"""

import hashlib
import itertools
import logging
import os
import pickle
import sys
from pathlib import Path

import llvmlite
import numba
import numpy as np
from numba.core import bytecode, compiler, config
from numba.core.caching import _Cache
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from strata.numerics.entries import LIMIT_BYTES, base_folder, forget_oldest, read_entry, write_entry
from strata.numerics.fingerprint import fingerprint
from strata.numerics.sources import PACKAGE, source_stamp

LOG = logging.getLogger(__name__)
VERSIONS = (1, sys.implementation.cache_tag, sys.version, numba.__version__, llvmlite.__version__, np.__version__)
COMPILER_SETTINGS = (
    "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "ENABLE_AVX", "CPU_NAME", "CPU_FEATURES",
    "USING_SVML", "DEBUGINFO_DEFAULT", "ENABLE_PROFILING", "LLVM_REFPRUNE_PASS",
)


class SymbolNumbers:
    """Numbers for compiled functions' symbols that no other process draws: a random start, anew after an os.fork."""

    def __init__(self) -> None:
        self._process, self._numbers = 0, itertools.count()

    def __iter__(self) -> "SymbolNumbers":
        return self

    def __next__(self) -> int:
        if self._process != os.getpid():
            self._numbers = itertools.count(int.from_bytes(os.urandom(10), "little") << 24)
            self._process = os.getpid()
        return next(self._numbers)


def cache_folder() -> Path:
    """Return the folder of compiled kernels; it need not exist."""
    return base_folder() / "kernels"


class KernelCache(_Cache):
    """The entries of one jitted function, in the form that Numba's dispatcher asks for."""

    def __init__(self, dispatcher) -> None:
        self._dispatcher = dispatcher
        self._function = dispatcher.py_func
        self._folder = cache_folder()
        self._why_not = None
        self._sources = self._try(source_stamp, self._function.__module__, Path(self._function.__code__.co_filename))
        self._live = None

    @property
    def cache_path(self) -> str:
        return str(self._folder)

    def enable(self) -> None:
        self._why_not = None

    def disable(self) -> None:
        self._why_not = "disabled"

    def flush(self) -> None:
        """Remove every entry of functions with this one's name."""
        for path in self._folder.glob(f"{self._name()}-*"):
            path.unlink(missing_ok=True)

    def load_overload(self, signature, target_context):
        """Return the compiled function for the argument types, or None."""
        target_context.refresh()
        return self._try(self._load, signature, target_context)

    def save_overload(self, signature, compiled) -> None:
        """Keep a compiled function for the argument types."""
        self._try(self._save, signature, compiled)

    def _try(self, action, *arguments):
        """Run a step; where it fails for a reason of files or kinds of objects, stop caching and say so once."""
        if self._why_not is not None:
            return None
        try:
            return action(*arguments)
        except (OSError, SyntaxError, TypeError, ValueError, pickle.PickleError) as failure:
            self._why_not = str(failure)
            LOG.warning("%s.%s is not kept on disk: %s", self._function.__module__, self._name(), failure)
            return None

    def _name(self) -> str:
        return self._function.__qualname__.replace("<locals>.", "").replace("<", "").replace(">", "")

    def _path(self, signature, codegen) -> Path:
        if self._live is None:
            packages = frozenset({PACKAGE, self._function.__module__.partition(".")[0]})
            self._live = fingerprint(self._dispatcher, packages)
        settings = [(name, getattr(config, name, None)) for name in COMPILER_SETTINGS]
        key = (VERSIONS, self._sources, self._live, settings, codegen.magic_tuple(), str(signature))
        return self._folder / f"{self._name()}-{hashlib.sha256(repr(key).encode()).hexdigest()[:40]}.kernel"

    def _load(self, signature, target_context):
        content = read_entry(self._path(signature, target_context.codegen()))
        if content is None:
            return None
        stored_signature, payload = pickle.loads(content)
        if stored_signature != signature:
            return None
        return compiler.CompileResult._rebuild(target_context, *payload)

    def _save(self, signature, compiled) -> None:
        if compiled.library.has_dynamic_globals or any(not lifted.can_cache for lifted in compiled.lifted):
            raise ValueError("its code holds addresses of this process")
        path = self._path(signature, compiled.codegen)
        write_entry(path, dumps((signature, compiled._reduce())))
        forget_oldest(self._folder, LIMIT_BYTES)


def keep_on_disk(dispatcher):
    """Give a jitted function that has not been compiled yet its entries in the kernel cache; return it.

    From the first call on, Numba draws the numbers in symbols from SymbolNumbers.  A plain function (NUMBA_DISABLE_JIT)
    is returned as it is.
    """
    if not isinstance(dispatcher, Dispatcher):
        return dispatcher
    numbers = getattr(bytecode.FunctionIdentity, "_unique_ids", None)
    if numbers is None:
        LOG.warning("this Numba numbers functions in an unknown way: kernels are not kept on disk")
        return dispatcher
    if not isinstance(numbers, SymbolNumbers):
        bytecode.FunctionIdentity._unique_ids = SymbolNumbers()
    dispatcher._cache = KernelCache(dispatcher)
    return dispatcher
