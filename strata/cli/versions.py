"""Versions of the interpreter and of the packages that bits and speed may depend on; imports none of them."""

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("strata", "numba", "llvmlite", "numpy", "numba-cuda", "gguf", "tokenizers")


def versions() -> dict[str, str]:
    """Return name -> version; a package that is not installed is absent."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
