"""Tests that need a card are skipped with the reason where there is none."""

import pytest

from strata.cuda.card.found import why_no_cuda


def pytest_collection_modifyitems(items):
    reason = why_no_cuda()
    for item in items:
        if "tests/gpu/" in item.nodeid:
            item.add_marker(pytest.mark.gpu)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def card():
    from strata.cuda.card.device import CudaDevice

    device = CudaDevice(0)
    yield device
    device.close()


@pytest.fixture(scope="session")
def control():
    from strata.cpu_pool.team import Team

    with Team(4) as team:
        yield team.control
