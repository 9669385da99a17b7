"""Kernels of the driver: compiled code from disk or compiler, loaded once per card and process.

Where nvJitLink is missing, what no folder holds is compiled and loaded by Numba itself, in its own time and not kept.
Does not know: launches.
"""

import logging
from functools import cache

from strata.cuda.card.compiling import why_no_compiler
from strata.cuda.card.found import Card, _checked
from strata.cuda.card.kernel_files import kernel_files

LOG = logging.getLogger(__name__)


@cache
def load_function(card: Card, dispatcher, types: tuple):
    """Return the driver's function of a kernel for argument types on the current card, which is `card`."""
    files = kernel_files()
    if _why_numba_compiles() is not None:
        compiled = files.find(dispatcher, types, card.capability)
        if compiled is None:
            return _numbas_own(dispatcher, types)
    else:
        compiled = files.get(dispatcher, types, card.capability)
    return _function_of(compiled.cubin, compiled.entry)


@cache
def _why_numba_compiles() -> str | None:
    reason = why_no_compiler()
    if reason is not None:
        LOG.warning("kernels are compiled by Numba and not kept on disk: %s", reason)
    return reason


def _function_of(cubin: bytes, entry: str):
    from cuda.bindings import driver

    library = _checked(driver.cuLibraryLoadData(cubin, [], [], 0, [], [], 0))
    return _checked(driver.cuKernelGetFunction(_checked(driver.cuLibraryGetKernel(library, entry.encode()))))


def _numbas_own(dispatcher, types: tuple):
    from cuda.bindings import driver

    compiled = dispatcher.compile(types)
    compiled.bind()
    handle = compiled._codelibrary.get_cufunc().handle
    return handle if isinstance(handle, driver.CUfunction) else _checked(driver.cuKernelGetFunction(handle))
