"""Host memory locked for several cards, with a driver that is not there: locked once, seen by all, unlocked by whoever locked it."""

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("cuda") is None:
    pytest.skip("the package cuda-bindings is not installed", allow_module_level=True)

SEEN_AT = 1 << 20
"""Kernels see host memory this much further on."""


class Driver:
    """Answers for the driver: `locked` are addresses with their bytes, `refuses` is what it says instead of locking."""

    def __init__(self, results) -> None:
        self.results, self.locked, self.refuses = results, {}, None

    def lock(self, address: int, n_bytes: int, flags: int) -> tuple:
        if self.refuses is not None:
            return (self.refuses,)
        if address in self.locked:
            return (self.results.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,)
        self.locked[address] = n_bytes
        return (self.results.CUDA_SUCCESS,)

    def unlock(self, address: int) -> tuple:
        del self.locked[address]
        return (self.results.CUDA_SUCCESS,)

    def seen(self, address: int, flags: int) -> tuple:
        is_locked = any(at <= address < at + n for at, n in self.locked.items())
        return (self.results.CUDA_SUCCESS, address + SEEN_AT) if is_locked else (self.results.CUDA_ERROR_INVALID_VALUE, 0)


@pytest.fixture
def driver(monkeypatch):
    from cuda.bindings import driver

    answers = Driver(driver.CUresult)
    for name, answer in (("cuMemHostRegister", answers.lock), ("cuMemHostUnregister", answers.unlock), ("cuMemHostGetDevicePointer", answers.seen)):
        monkeypatch.setattr(driver, name, answer)
    return answers


def test_cards_see_the_same_copies_and_the_first_one_unlocks_them(driver):
    from strata.cuda.card.page_locks import register, unregister

    array, first, second = np.zeros(4096, np.uint8), set(), set()
    for owned in (first, second, first):
        assert register(array, owned) == (array.ctypes.data + SEEN_AT, "")
    assert first == {array.ctypes.data} and not second and driver.locked == {array.ctypes.data: 4096}
    unregister(array, second)
    assert driver.locked
    unregister(array, first)
    assert not driver.locked and not first


def test_what_the_driver_refuses_is_told_and_nothing_stays_locked(driver):
    from strata.cuda.card.page_locks import register

    array, owned = np.zeros(4096, np.uint8), set()
    driver.refuses = driver.results.CUDA_ERROR_OUT_OF_MEMORY
    assert register(array, owned) == (None, "CUDA_ERROR_OUT_OF_MEMORY") and not owned


def test_memory_of_which_a_part_is_locked_already_is_refused_and_left_as_it_was(driver):
    from strata.cuda.card.page_locks import register

    array, other, owned = np.zeros(4096, np.uint8), set(), set()
    register(array[:1024], other)
    assert register(array, owned) == (None, "CUDA_ERROR_INVALID_VALUE")
    assert not owned and driver.locked == {array.ctypes.data: 1024}
