"""A program for tests: multiplies rows of formats with whatever instructions it is compiled for, and prints digests.

    python -m tests.unit.cpu_pool.row_digests FORMAT,..               lines "instruction set" and "format digest"
    python -m tests.unit.cpu_pool.row_digests FORMAT,.. at-the-edge   with weights that end where readable memory ends
"""

import ctypes
import hashlib
import mmap
import sys

import numpy as np

from strata.cpu_pool.instruction_sets import instruction_set
from strata.cpu_pool.team import Team
from strata.formats.table import by_name
from strata.host.matrix import Activations, Matrix
from strata.model.tensor import Tensor
from tests.unit.cpu_pool.row_cases import fits, random_rows, random_weights

PROT_NONE = 0


def at_the_edge(raw: np.ndarray) -> np.ndarray:
    """A copy of `raw` whose last byte is the last one before a page that may not be touched."""
    page = mmap.PAGESIZE
    n_pages = -(-raw.size // page)
    memory = np.frombuffer(mmap.mmap(-1, (n_pages + 1) * page), np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(memory.ctypes.data + n_pages * page, page, PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    copy = memory[n_pages * page - raw.size : n_pages * page]
    copy[:] = raw
    return copy


def digests(names: list[str], place) -> None:
    print(instruction_set())
    with Team(1) as team:
        for form in map(by_name, names):
            digest = hashlib.sha256()
            for n_in in (n for n in (32, 64, 256, 640) if fits(form, n)):
                weights, x = random_weights(form, n_in, 5), random_rows(5, n_in)
                matrix = Matrix(Tensor("w", form.name, (5, n_in), place(weights.raw), "nowhere"))
                for n_rows in (1, 2, 5):
                    rows = Activations(x[:n_rows], team.control, np.full(n_rows, 32, np.int32))
                    digest.update(matrix.times(rows, True, team.control).tobytes())
            print(form.name, digest.hexdigest())


if __name__ == "__main__":
    digests(sys.argv[1].split(","), at_the_edge if sys.argv[2:] == ["at-the-edge"] else lambda raw: raw)
