"""A digest of a live function: its bytecode and everything that Numba would bake into machine code through it.

Followed: closures, defaults, globals that the code names, other functions, jitted functions with their options,
intrinsics, constants, arrays with their contents, containers, dataclasses, namespaces, and what the code may read from
modules of its own package.  Functions of other packages (Numba, numpy) count by name; their versions belong to the
cache's key.  Two functions of one factory differ by what they close over, so they differ here; the same function in
another process is equal here, which Numba's own key does not achieve for closures over jitted functions (it pickles
them with a random identifier).  Raises TypeError for an object of a kind that it does not know, rather than guess.
"""

import dataclasses
import enum
import functools
import hashlib
import logging
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, SimpleNamespace

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.extending import _Intrinsic

PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range)
COUNT_BY_TEXT = (types.Type, ir.Type, ir.Constant, np.dtype, np.ufunc, PurePath)
COUNT_BY_NAME = (type, BuiltinFunctionType, ModuleType, logging.Logger)
SOURCE_OPTIONS = ("launch_bounds", "fastmath", "device", "inline", "forceinline")
"""Options that a decorator in the sources sets, for itself or through a value that it computes."""
ATOMS = (*PLAIN, *COUNT_BY_TEXT, *COUNT_BY_NAME, np.generic, np.ndarray, enum.Enum)


def _is_jitted(value: object) -> bool:
    """Whether a value is a jitted function of Numba, or one of numba-cuda, whose class is another."""
    return isinstance(value, Dispatcher) or hasattr(value, "targetoptions") and hasattr(value, "py_func")


def names_in(code: CodeType) -> set[str]:
    """Return every global and attribute name in a code object and those nested in it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= names_in(constant)
    return names


def _framed(part: object) -> bytes:
    content = part if isinstance(part, bytes) else str(part).encode()
    return b"%d:" % len(content) + content


@functools.cache
def _framed_name(name: str) -> bytes:
    """What a string is written as: most of what is written are names, and most names come again and again."""
    return _framed(str.__module__) + _framed(str.__qualname__) + _framed(repr(name))


class Fingerprint:
    """One walk over a function's objects; `packages` are the top-level packages whose functions are followed."""

    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages
        self._written: list[bytes] = []
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []  # keeps ids unique during the walk

    def hexdigest(self) -> str:
        return hashlib.sha256(b"".join(self._written)).hexdigest()

    def _write(self, *parts: object) -> None:
        self._written += map(_framed, parts)

    def _is_own(self, module: str | None) -> bool:
        return (module or "").partition(".")[0] in self._packages

    def add(self, value: object) -> None:
        """Add an object and what it refers to."""
        if type(value) is str:
            self._written.append(_framed_name(value))
        elif isinstance(value, ATOMS):
            self._add_atom(value)
        elif id(value) in self._seen:
            self._write("seen", self._seen[id(value)])
        else:
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
            self._add_composite(value)

    def _add_atom(self, value: object) -> None:
        kind = type(value)
        self._write(kind.__module__, kind.__qualname__)
        if isinstance(value, (np.ndarray, np.generic)):
            if value.dtype.hasobject:
                raise TypeError(f"an array of {value.dtype} cannot be part of a kernel's fingerprint")
            self._write(value.dtype.str, value.shape, value.tobytes())
        elif isinstance(value, (type, BuiltinFunctionType)):
            self._write(value.__module__, value.__qualname__)
        elif isinstance(value, (ModuleType, logging.Logger)):
            self._write(value.__name__ if isinstance(value, ModuleType) else value.name)
        elif isinstance(value, enum.Enum):
            self._write(value.name, value.value)
        else:
            self._write(repr(value) if isinstance(value, PLAIN) else str(value))

    def _add_composite(self, value: object) -> None:
        self._write(type(value).__name__)
        if _is_jitted(value):
            self._add_items(sorted((k, str(v)) for k, v in self._options(value).items()))
            self.add(value.py_func)
        elif isinstance(value, _Intrinsic) or hasattr(value, "_defn"):  # numba-cuda has a class of its own
            self.add(value._defn)
        elif hasattr(value, "return_type") and hasattr(value, "args"):  # a signature, of either class
            self._write(str(value))
        elif isinstance(value, FunctionType):
            self._add_function(value)
        elif isinstance(value, CodeType):
            self._add_code(value)
        elif isinstance(value, functools.partial):
            self._add_items([value.func, value.args, value.keywords])
        elif hasattr(value, "__wrapped__"):
            self.add(value.__wrapped__)
        elif isinstance(value, (tuple, list)):
            self._add_items(value)
        elif isinstance(value, (set, frozenset)):
            self._add_items(sorted(value, key=repr))
        elif isinstance(value, dict):
            self._add_items([item for pair in value.items() for item in pair])
        elif dataclasses.is_dataclass(value):
            self._add_items([getattr(value, field.name) for field in dataclasses.fields(value)])
        elif isinstance(value, SimpleNamespace):
            self._add_items([item for pair in sorted(vars(value).items()) for item in pair])
        else:
            raise TypeError(f"{value!r} of type {type(value).__qualname__} cannot be part of a kernel's fingerprint")

    def _options(self, jitted) -> dict:
        """Return the compiler options of a jitted function that count."""
        return jitted.targetoptions

    def _add_items(self, items) -> None:
        self._write(len(items))
        for item in items:
            self.add(item)

    def _add_function(self, function: FunctionType) -> None:
        self._write(function.__module__, function.__qualname__)
        if not self._is_own(function.__module__):
            return
        self.add(function.__code__)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            self.add(cell.cell_contents)
        names = sorted(names_in(function.__code__))
        for name in names:
            if name in function.__globals__:
                self._write(name)
                self._add_global(function.__globals__[name], names)

    def _add_global(self, value: object, names: list[str]) -> None:
        self.add(value)
        if isinstance(value, ModuleType) and self._is_own(value.__name__):
            for name in names:
                if name in vars(value):
                    self._write(name)
                    self.add(vars(value)[name])

    def _add_code(self, code: CodeType) -> None:
        self._write(code.co_name, code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_code)
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            self._add_items(names)
        self._add_items(code.co_consts)


class PortableFingerprint(Fingerprint):
    """As Fingerprint, without bytecode and globals: equal for one source in every Python.

    A function is its module, name, first line, defaults and what it closes over, by name.  What its code says and what its
    globals are is left to the stamp over its source files (`sources`); compiler options whose defaults are a matter of what is
    installed are left out.
    """

    def _options(self, jitted) -> dict:
        return {name: value for name, value in jitted.targetoptions.items() if name in SOURCE_OPTIONS}

    def _add_function(self, function: FunctionType) -> None:
        code = function.__code__
        self._write(function.__module__, function.__qualname__)
        if not self._is_own(function.__module__):
            return
        self._write(code.co_firstlineno)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for name in sorted(cells):
            self._write(name)
            self.add(cells[name].cell_contents)


def fingerprint(function: object, packages: frozenset[str]) -> str:
    """Return the SHA-256 (hexadecimal) of a Python or jitted function, following functions of `packages`."""
    walk = Fingerprint(packages)
    walk.add(function)
    return walk.hexdigest()


def portable_fingerprint(function: object, packages: frozenset[str]) -> str:
    """As `fingerprint`, of what a function closes over only."""
    walk = PortableFingerprint(packages)
    walk.add(function)
    return walk.hexdigest()
