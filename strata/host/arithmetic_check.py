"""Is this machine's arithmetic the contract's?  Asked once, when a host device opens.

Every thread of the device's team is asked about its control word: one fork with one piece per thread, in which each piece
waits until all have begun, so that no thread takes two.  The wait ends after `PATIENCE_NS` in any case; a thread that the
system has not run by then stays unasked (threads inherit the word of the one that starts them).
A CPU without a fused multiply-add gets the right bits through a library call, slowly: that is said once in a process.
Does not know: what is computed.
"""

import logging
import platform
from collections.abc import Mapping
from functools import cache

import numpy as np
from llvmlite import binding

from strata.cpu_pool.atomics import add, clock_ns, load, yield_core
from strata.cpu_pool.fork import fork
from strata.cpu_pool.team import Team
from strata.numerics.control_word import PROBE, faults_here, refusal
from strata.numerics.cpu import jit, kernel

LOG = logging.getLogger(__name__)
PATIENCE_NS = 2_000_000_000
X86 = ("x86_64", "amd64", "i386", "i686")
FAULTS, ARRIVED = 0, 8


@jit
def _ask(begin, end, arguments):
    probe, words, n_threads, give_up_at = arguments
    for _ in range(begin, end):
        faults = faults_here(probe)
        for bit in (1, 2, 4):
            if faults & bit:
                add(words, FAULTS + bit, 1)
        add(words, ARRIVED, 1)
        while load(words, ARRIVED) < n_threads and clock_ns() < give_up_at:
            yield_core()


@kernel
def _ask_all(control, probe, words, n_threads, patience_ns):
    fork(control, _ask, n_threads, 1, (probe, words, n_threads, clock_ns() + patience_ns))


def require_exact_team(name: str, team: Team) -> None:
    """Raise DeviceError unless every thread of the team keeps subnormal numbers and rounds to nearest even."""
    words = np.zeros(ARRIVED + 1, np.int64)
    _ask_all(team.control, PROBE, words, team.n_threads, PATIENCE_NS)
    faults = sum(bit for bit in (1, 2, 4) if words[FAULTS + bit])
    if faults:
        raise refusal(f"a thread of {name}", faults)


def fuses_natively(machine: str, features: Mapping[str, bool]) -> bool:
    """Whether a CPU multiplies and adds with one rounding by an instruction; only x86 has CPUs that do not."""
    return machine.lower() not in X86 or bool(features.get("fma", False))


@cache
def warn_where_fma_is_slow() -> None:
    """Log a warning, once in a process, where this CPU has no fused multiply-add."""
    if not fuses_natively(platform.machine(), binding.get_host_cpu_features()):
        LOG.warning("this CPU has no fused multiply-add: results have the right bits, but a library call makes each slow")
