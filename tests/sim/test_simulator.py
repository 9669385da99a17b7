"""The CUDA kernels' logic and bounds in Numba's simulator, in a process of its own.

The simulator is chosen when Numba is imported; so the cases beside this file run in a second pytest.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="the package numba-cuda is not installed")
@pytest.mark.parametrize("case", sorted(path.name for path in (HERE / "cases").glob("simulate_*.py")))
def test_kernels_are_right_in_the_simulator(case):
    environment = dict(os.environ, NUMBA_ENABLE_CUDASIM="1", PYTHONWARNINGS="ignore")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "python_files=simulate_*.py", str(HERE / "cases" / case)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout, done.stdout[-2000:]
