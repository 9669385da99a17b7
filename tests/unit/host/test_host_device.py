"""A host device's byte budget: what is taken, refused and given back."""

import pytest

from strata.errors import DeviceMemoryError
from strata.host.device import HostDevice


@pytest.fixture
def device():
    opened = HostDevice("host:0", 1000, 1)
    yield opened
    opened.close()


def test_what_is_taken_is_accounted_by_purpose(device):
    device.take("weights", 600)
    device.take("sessions", 300)
    device.take("weights", 50)
    assert device.taken == {"weights": 650, "sessions": 300} and device.taken_bytes == 950
    device.give_back("weights")
    assert device.taken_bytes == 300


def test_more_than_is_left_is_refused_and_nothing_is_taken(device):
    device.take("weights", 600)
    with pytest.raises(DeviceMemoryError, match="sessions asks for 401 bytes on host:0: 400 bytes are free") as failure:
        device.take("sessions", 401)
    assert (failure.value.asked_bytes, failure.value.free_bytes) == (401, 400)
    assert device.taken == {"weights": 600}
    device.take("sessions", 400)


def test_a_device_without_a_budget_takes_everything():
    device = HostDevice("host:1", None, 1)
    device.take("weights", 1 << 60)
    assert device.kind == "host" and device.taken_bytes == 1 << 60
    device.close()


def test_giving_back_what_was_never_taken_does_nothing(device):
    device.give_back("nothing")
    assert device.taken_bytes == 0
