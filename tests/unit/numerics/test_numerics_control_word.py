"""Threads whose floating-point unit flushes or rounds otherwise are found; the word is changed in a thread of its own."""

import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from platform import machine

import numba
import numpy as np
import pytest
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from strata.cpu_pool.team import Team
from strata.errors import DeviceError
from strata.host import arithmetic_check
from strata.host.device import HostDevice
from strata.numerics.control_word import FLUSHES, OTHER_DIRECTION, PROBE, READS_ZERO, faults_of_this_thread, require_exact

FLUSH_TO_ZERO, DENORMALS_ARE_ZERO = 0x8000, 0x0040
ROUND_DOWN, ROUND_UP, ROUND_TO_ZERO = 0x2000, 0x4000, 0x6000

needs_mxcsr = pytest.mark.skipif(machine() not in ("x86_64", "AMD64"), reason="sets the control word of an x86 CPU")


def _with_word(name):
    @intrinsic
    def operation(typing_context, words):
        def emit(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            pointer = builder.bitcast(data, ir.IntType(8).as_pointer())
            function_type = ir.FunctionType(ir.VoidType(), [pointer.type])
            builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), [pointer])
            return context.get_dummy_value()

        return types.void(words), emit

    return operation


store_word, load_word = _with_word("llvm.x86.sse.stmxcsr"), _with_word("llvm.x86.sse.ldmxcsr")


@numba.njit
def set_bits(words, bits):
    """Set bits of this thread's control word; words uint32 [1] is scratch."""
    store_word(words)
    words[0] |= bits
    load_word(words)


def in_thread_with(bits: int, action):
    """Run an action in a fresh thread with bits of its control word set; the thread ends afterwards."""
    set_bits(np.zeros(1, np.uint32), 0)  # compiled here, not there

    def run():
        set_bits(np.zeros(1, np.uint32), bits)
        return action()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def test_this_thread_is_exact():
    assert faults_of_this_thread(PROBE) == 0
    require_exact("this thread")


@needs_mxcsr
@pytest.mark.parametrize(
    ("bits", "faults"),
    [
        (FLUSH_TO_ZERO, FLUSHES),
        (DENORMALS_ARE_ZERO, READS_ZERO),
        (FLUSH_TO_ZERO | DENORMALS_ARE_ZERO, FLUSHES | READS_ZERO),
        (ROUND_DOWN, OTHER_DIRECTION),
        (ROUND_UP, OTHER_DIRECTION),
        (ROUND_TO_ZERO, OTHER_DIRECTION),
        (0, 0),
    ],
)
def test_each_fault_of_a_control_word_is_found(bits, faults):
    assert in_thread_with(bits, lambda: faults_of_this_thread(PROBE)) == faults
    assert faults_of_this_thread(PROBE) == 0


@needs_mxcsr
def test_a_thread_that_flushes_is_refused_by_name():
    with pytest.raises(DeviceError, match="arithmetic of stage 1: subnormal results become zero"):
        in_thread_with(FLUSH_TO_ZERO, lambda: require_exact("stage 1"))


@needs_mxcsr
def test_a_device_does_not_open_on_a_thread_that_flushes():
    with pytest.raises(DeviceError, match="host:0.*subnormal"):
        in_thread_with(FLUSH_TO_ZERO, lambda: HostDevice("host:0", None, 1))


@needs_mxcsr
@pytest.mark.skipif(sys.platform != "linux", reason="teams have workers on Linux only")
def test_a_worker_that_flushes_is_found_although_the_caller_is_exact():
    """Threads inherit the word of the one that starts them: this team's workers flush, the thread that asks does not."""
    team = in_thread_with(FLUSH_TO_ZERO, lambda: Team(2))
    try:
        with pytest.raises(DeviceError, match="a thread of host:1"):
            arithmetic_check.require_exact_team("host:1", team)
    finally:
        team.close()


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_every_thread_of_a_device_is_asked(n_threads):
    device = HostDevice("host:0", None, n_threads)
    give_up_at = time.monotonic() + 20  # a worker counts its pieces a moment after the device is open
    while not all(device.team.n_pieces_by_workers) and time.monotonic() < give_up_at:
        time.sleep(0.001)
    assert all(n == 1 for n in device.team.n_pieces_by_workers)
    device.close()


def test_only_x86_has_cpus_that_do_not_fuse():
    assert arithmetic_check.fuses_natively("x86_64", {"fma": True})
    assert not arithmetic_check.fuses_natively("x86_64", {"fma": False})
    assert not arithmetic_check.fuses_natively("AMD64", {})
    assert arithmetic_check.fuses_natively("aarch64", {})


def test_a_cpu_without_fma_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr(arithmetic_check, "fuses_natively", lambda machine, features: False)
    arithmetic_check.warn_where_fma_is_slow.cache_clear()
    with caplog.at_level(logging.WARNING):
        HostDevice("host:0", None, 1).close()
        HostDevice("host:1", None, 1).close()
    arithmetic_check.warn_where_fma_is_slow.cache_clear()
    assert [record.message for record in caplog.records if "fused" in record.message] == [
        "this CPU has no fused multiply-add: results have the right bits, but a library call makes each slow"
    ]


def test_a_cpu_with_fma_is_told_nothing(monkeypatch, caplog):
    monkeypatch.setattr(arithmetic_check, "fuses_natively", lambda machine, features: True)
    arithmetic_check.warn_where_fma_is_slow.cache_clear()
    HostDevice("host:0", None, 1).close()
    arithmetic_check.warn_where_fma_is_slow.cache_clear()
    assert not [record for record in caplog.records if "fused" in record.message]
