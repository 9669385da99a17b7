"""The memory of a `CudaDevice` on a driver that is not there."""

import gc
import weakref

import numpy as np
import pytest

from strata.cuda.card.compiling import why_no_compiler
from strata.cuda.card.small_arrays import PAGE_BYTES, SHARED_PAGES, STEP
from strata.errors import DeviceError, DeviceMemoryError
from tests.ptx.driver import no_driver

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
TOTAL = 32 * PAGE_BYTES


@pytest.fixture
def driver(monkeypatch):
    with no_driver(monkeypatch, TOTAL) as found:
        yield found


def opened(budget_bytes: int | None = None):
    from strata.cuda.card.device import CudaDevice

    return CudaDevice(0, budget_bytes)


def address_of(array) -> int:
    return array.device_ctypes_pointer.value


def require_exact(device) -> None:
    memory = device.memory()
    assert memory.taken_bytes == memory.reported_bytes


def test_every_byte_that_the_driver_gives_has_a_purpose(driver):
    device, generator = opened(), np.random.default_rng(1)
    held = {}
    for i, n in enumerate(generator.integers(1, 700_000, 60).tolist()):
        held.setdefault(f"purpose {i % 7}", []).append(device.empty(f"purpose {i % 7}", n // 8, np.float64))
    held["large"] = [device.empty("large", (3, 1 << 19), np.float32)]
    require_exact(device)
    assert device.taken["purpose 3"] == sum(-(-array.nbytes // STEP) * STEP for array in held["purpose 3"])
    assert 0 < device.taken[SHARED_PAGES] < 2 * PAGE_BYTES
    for name in list(held):
        del held[name]
        device.give_back(name)
        require_exact(device)
    assert device.taken == {SHARED_PAGES: sum(driver.held.values())}, "blocks wait for small arrays"


def test_blocks_that_hold_nothing_go_where_a_large_array_needs_their_bytes(driver):
    device = opened(4 * PAGE_BYTES)
    held = [device.empty("small", (1 << 20) - 1, np.uint8) for _ in range(8)]
    del held
    device.give_back("small")
    assert device.taken == {SHARED_PAGES: 4 * PAGE_BYTES} and len(driver.held) == 4
    device.memory()
    assert len(driver.held) == 4
    large = device.empty("large", 2 * PAGE_BYTES, np.uint8)
    assert device.taken == {"large": 2 * PAGE_BYTES} and large.size == 2 * PAGE_BYTES and len(driver.held) == 1
    require_exact(device)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[3:5], lambda a: a[2:][1:2], lambda a: a.reshape(4, 64), lambda a: a.reshape(4, 64)[1], lambda a: a.view(np.uint8)[:1],
        lambda a: a.view(np.int64).reshape(2, 64)[1:], lambda a: a.ravel(), lambda a: a.bind(0),
    ],
)
def test_a_view_keeps_the_bytes_of_a_small_array(view, driver):
    device = opened()
    array = device.empty("rows", 256, np.float32)
    at, part = address_of(array), view(array)
    del array
    other = device.empty("rows", 256, np.float32)
    assert address_of(other) == at + 1024 and not driver.events
    again = view(part) if part.size > 200 else part
    del part
    assert address_of(device.empty("rows", 1, np.float32)) == at + 2048
    del again
    assert address_of(device.empty("rows", 256, np.float32)) == at and driver.events == ["wait"]


def test_shapes_types_and_alignment_are_those_asked_for(driver):
    device = opened()
    for shape, dtype in ((7, np.int8), ((3, 5), np.float32), ((2, 3, 4), np.uint64), (0, np.float32), ((1,), np.uint16)):
        array = device.empty("any", shape, dtype)
        assert array.shape == (shape if isinstance(shape, tuple) else (shape,)) and array.dtype == dtype
        assert array.size == 0 or address_of(array) % STEP == 0


def test_a_block_that_exceeds_the_budget_is_refused_before_anything_is_allocated(driver):
    device = opened(2 * PAGE_BYTES)
    held = [device.empty("a", (1 << 20) - 1, np.uint8)]
    large = device.empty("b", 1 << 20, np.uint8)
    before = dict(device.taken)
    held.append(device.empty("a", 1 << 19, np.uint8))
    with pytest.raises(DeviceMemoryError, match="too much") as caught:
        device.empty("too much", 1 << 20 - 1, np.float32)
    assert (caught.value.asked_bytes, caught.value.free_bytes) == (PAGE_BYTES, 0)
    assert len(driver.held) == 2 and "too much" not in device.taken
    held.pop()
    require_exact(device)
    assert device.taken == before
    del large
    device.give_back("b")
    assert device.empty("too much", 1 << 20 - 1, np.float32).size == 1 << 19


def test_a_card_that_is_full_is_an_error_that_takes_nothing(driver):
    device = opened()
    held = device.empty("most", TOTAL - 1, np.uint8)
    for n in (1, 1 << 20):
        with pytest.raises(DeviceMemoryError, match="more"):
            device.empty("more", n, np.uint8)
        assert device.taken == {"most": TOTAL}
    assert held.size == TOTAL - 1


def test_nothing_is_freed_or_waited_for_while_memory_is_kept(driver):
    device = opened()
    array = device.empty("a", 100, np.float32)
    at = address_of(array)
    with device.keeping_memory():
        del array
        other = device.empty("b", 100, np.float32)
        device.give_back("a")
        assert address_of(other) != at and not driver.events
    assert address_of(device.empty("b", 100, np.float32)) == at and driver.events == ["wait"]


def test_a_kernel_that_failed_is_told_and_nothing_is_lost(driver, monkeypatch):
    from strata.cuda.card.device import CudaDevice

    device = opened()
    device.empty("a", 100, np.float32)

    def fail(self) -> None:
        raise DeviceError("the CUDA driver", "it answered ILLEGAL_ADDRESS", "")

    with monkeypatch.context() as patched:
        patched.setattr(CudaDevice, "synchronise", fail)
        for again in (lambda: device.empty("b", 1, np.float32), lambda: device.give_back("a"), device.memory):
            with pytest.raises(DeviceError, match="ILLEGAL"):
                again()
    require_exact(device)
    assert device.taken == {SHARED_PAGES: PAGE_BYTES} and len(driver.held) == 1


def test_pages_are_shared_with_nothing_and_parts_of_them_may_be_moved(driver):
    device = opened()
    cache = device.pages("cache", 5000)
    device.move("cache", "ring", 2000)
    small = device.empty("small", 1, np.float32)
    assert cache.size == 5000 and device.taken == {"cache": PAGE_BYTES - 2000, "ring": 2000, "small": STEP, SHARED_PAGES: PAGE_BYTES - STEP}
    require_exact(device)
    del cache, small
    for purpose in ("cache", "ring", "small"):
        device.give_back(purpose)
    assert device.taken == {SHARED_PAGES: PAGE_BYTES} and len(driver.held) == 1


def test_arrays_that_outlive_a_closed_device_free_their_blocks(driver):
    device = opened()
    gc.disable()
    try:
        kept, other = device.empty("a", 1, np.float32), device.empty("b", 1 << 19, np.uint8)
        gone = device.empty("b", (1 << 20) - 1, np.uint8), device.empty("b", (1 << 20) - 1, np.uint8)
        del gone
        device.close()
        assert device.taken == {}
        driver.clear()
        assert len(driver.held) == 1
        del kept, other
        driver.clear()
        assert not driver.held
        gone = weakref.ref(device)
        del device
        assert gone() is None, "a device is in no circle"
    finally:
        gc.enable()


def test_a_thousand_sessions_opened_and_closed_take_what_one_takes(driver):
    device, generator = opened(), np.random.default_rng(3)
    weights = [device.empty("weights", n, np.uint8) for n in generator.integers(1, 300_000, 40).tolist()]
    sizes = generator.integers(1, 1 << 18, 12).tolist()
    taken = []
    for _ in range(1000):
        session = [device.empty(f"session {i % 3}", n, np.float32) for i, n in enumerate(sizes)]
        taken.append(dict(device.taken))
        del session
        for i in range(3):
            device.give_back(f"session {i}")
    require_exact(device)
    assert all(one == taken[0] for one in taken) and len(weights) == 40
    assert sum(driver.held.values()) == device.taken["weights"] + device.taken[SHARED_PAGES]
