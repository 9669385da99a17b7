"""Fixtures of the simulator's cases; numpy's scalars warn of the wrap-around that kernels want."""

import numpy as np
import pytest

from strata.cpu_pool.team import Team
from strata.cuda.card.device import CudaDevice
from strata.cuda.machine.seam import SIMULATED


@pytest.fixture(autouse=True)
def quiet():
    assert SIMULATED, "NUMBA_ENABLE_CUDASIM=1 is missing"
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def card():
    device = CudaDevice(0)
    yield device
    device.close()


@pytest.fixture
def control():
    with Team(1) as team:
        yield team.control
