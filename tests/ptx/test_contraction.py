"""The checks can fail: a bare product and sum is found in the PTX and becomes one fused operation in machine code."""

import shutil
import subprocess

import numpy as np
import pytest

from strata.cuda.card.compiling import compile_ptx, link, why_no_compiler
from tests.ptx.compiled import unrounded_operations

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]


def probe(rounded: bool):
    from numba import cuda

    from strata.cuda.machine.seam import add, kernel, mul

    @kernel(32)
    def with_seam(x, out):
        i = cuda.grid(1)
        out[i] = add(mul(x[i], x[i + 1]), x[i + 2])

    @kernel(32)
    def bare(x, out):
        i = cuda.grid(1)
        out[i] = np.float32(x[i] * x[i + 1]) + x[i + 2]

    return with_seam if rounded else bare


def signature():
    from numba.cuda import types

    return (types.Array(types.float32, 1, "C"),) * 2


def test_a_bare_product_and_sum_is_reported():
    assert unrounded_operations(compile_ptx(probe(rounded=True), signature(), (9, 0))) == []
    bare = compile_ptx(probe(rounded=False), signature(), (9, 0))
    assert unrounded_operations(bare) or "fma.rn.f32" in bare


@pytest.mark.skipif(shutil.which("nvdisasm") is None, reason="nvdisasm is not on the PATH")
@pytest.mark.parametrize("capability", [(8, 6), (9, 0)])
def test_machine_code_fuses_only_what_was_not_rounded(capability, tmp_path):
    counts = []
    for rounded in (True, False):
        cubin, _ = link(compile_ptx(probe(rounded), signature(), capability), capability)
        path = tmp_path / f"{rounded}.cubin"
        path.write_bytes(cubin)
        code = subprocess.run(["nvdisasm", "-c", str(path)], capture_output=True, text=True, check=True).stdout
        counts.append(code.count("FFMA"))
    assert counts == [0, 1]
