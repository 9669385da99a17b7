"""Half precision on a CPU without the instruction: the linker's substitutes against numpy, in a process compiled for such a CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OLD_CPU = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
PROGRAM = """
import numpy as np
from strata.numerics.cpu import HALF_SYMBOLS, half, kernel, to_half

@kernel
def widen(bits, out):
    for i in range(bits.size):
        out[i] = half(np.uint32(bits[i]))

@kernel
def narrow(values, out):
    for i in range(values.size):
        out[i] = to_half(values[i])

bits = np.arange(65536, dtype=np.uint32)
wide = np.empty(65536, np.float32)
widen(bits, wide)
expected = bits.astype(np.uint16).view(np.float16).astype(np.float32)
number = ~np.isnan(expected)
assert (wide.view(np.uint32) == expected.view(np.uint32))[number].all() and np.isnan(wide[~number]).all()

draw = np.random.default_rng(7)
edges = [65519.99, 65520, 65504, -65520, 2.0**-25, 1.5 * 2.0**-24, 0.5 * 2.0**-24, 2.0**-14, 0.0, -0.0, np.inf, -np.inf]
values = np.concatenate((
    draw.integers(0, 1 << 32, 400_000, dtype=np.uint32).view(np.float32), expected,
    (draw.standard_normal(200_000) * np.exp2(draw.integers(-30, 18, 200_000))).astype(np.float32), np.array(edges, np.float32),
))
out = np.empty(values.size, np.uint16)
narrow(values, out)
with np.errstate(over="ignore", invalid="ignore"):
    halves = values.astype(np.float16).view(np.uint16)
number = ~np.isnan(values)
assert (out == halves)[number].all() and np.isnan(out.view(np.float16)[~number]).all()
print(len(HALF_SYMBOLS))
"""


def run(tmp_path, **environment):
    paths = {"PYTHONPATH": str(ROOT), "STRATA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=os.environ | paths | environment)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_the_substitutes_convert_every_half_exactly_and_round_to_nearest_even(tmp_path):
    assert run(tmp_path, **OLD_CPU) == 2


def test_a_cpu_with_the_instruction_needs_no_substitutes(tmp_path):
    from llvmlite import binding

    if not binding.get_host_cpu_features().get("f16c"):
        pytest.skip("this CPU has no F16C")
    assert run(tmp_path) == 0


@pytest.mark.slow
@pytest.mark.parametrize("cpu", [OLD_CPU, {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c,+avx,+sse4.2,+ssse3,+popcnt"}], ids=["generic", "haswell"])
def test_golden_rows_hold_when_compiled_for_other_instruction_sets(cpu, tmp_path):
    command = [sys.executable, "-m", "harness.cli.main", "check", "--items", "4"]
    paths = {"PYTHONPATH": str(ROOT), "STRATA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | paths | cpu, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
