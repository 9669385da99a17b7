"""Does this thread's floating-point unit round as the contract says?

A library built with fast-math options may set the CPU's control word so that subnormal results become zero (flush to
zero) or subnormal operands are read as zero; another rounding direction can be set too.  The word belongs to a thread
and is inherited by the threads that it starts, so each thread that runs kernels is asked.  Instead of reading a register
whose form depends on the CPU, `faults_here` does three sums that come out differently.

    PROBE                     float32 [7]: the operands, passed as an array so that no compiler computes the result
    faults_here(probe)        int32, 0 where all is well, else a sum of FLUSHES, READS_ZERO, OTHER_DIRECTION
    require_exact(who)        raises DeviceError unless the calling thread's arithmetic is the contract's

Does not know: threads, devices; CPUs without a fused multiply-add (`host.arithmetic_check`).
"""

import numpy as np

from strata.errors import DeviceError
from strata.numerics.cpu import add, bits, jit, kernel, mul

FLUSHES, READS_ZERO, OTHER_DIRECTION = 1, 2, 4
MEANING = {
    FLUSHES: "subnormal results become zero",
    READS_ZERO: "subnormal operands are read as zero",
    OTHER_DIRECTION: "sums do not round to nearest even",
}
PROBE = np.array([2.0**-100, 2.0**-40, 2.0**-140, 2.0**100, 1.0, 2.0**-24, 3 * 2.0**-24], np.float32)
PROBE.flags.writeable = False
ONE_BITS, ONE_AND_TWO_UNITS_BITS = np.int32(0x3F800000), np.int32(0x3F800002)


@jit
def faults_here(probe):
    """Return the sum of this thread's faults: 2^-140 by a product, from a product, and two ties of 1 + k * 2^-24."""
    faults = 0
    if bits(mul(probe[0], probe[1])) == 0:
        faults += FLUSHES
    if bits(mul(probe[2], probe[3])) == 0:
        faults += READS_ZERO
    if bits(add(probe[4], probe[5])) != ONE_BITS or bits(add(probe[4], probe[6])) != ONE_AND_TWO_UNITS_BITS:
        faults += OTHER_DIRECTION
    return np.int32(faults)


@kernel
def faults_of_this_thread(probe):
    """`faults_here` for callers in Python."""
    return faults_here(probe)


def refusal(who: str, faults: int) -> DeviceError:
    """Return the error that says what is wrong with the arithmetic of thread `who`."""
    meaning = " and ".join(text for bit, text in MEANING.items() if faults & bit)
    return DeviceError(f"arithmetic of {who}", meaning, "find the library that changes the control word and load it later")


def require_exact(who: str) -> None:
    """Raise DeviceError unless the calling thread keeps subnormal numbers and rounds to nearest even."""
    faults = faults_of_this_thread(PROBE)
    if faults:
        raise refusal(who, int(faults))
