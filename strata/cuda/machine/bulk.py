"""Bulk copies: whole rows from global to shared memory by one instruction each, behind a barrier that counts their bytes.

A barrier is 8 bytes of shared memory, at a multiple of 8.  A turn of it is over when all its arrivals are there and all announced bytes
have landed; the first turn has parity 0, the next 1, and so on.  Whole warps come to every function but the first two.  For
targets with `bulk_copies`.

    set_up(barrier, n_arrivals)              by one thread; the block meets before anybody uses the barrier
    take_down(barrier)                       by one thread, when nobody uses it any more
    arrive(barrier, n_bytes)                 one arrival for the warp; announces bytes that it copies or has copied in this turn
    bulk_copy(to, source, n_bytes, barrier, is_wanted)
                                             one copy for the warp, or none; addresses as in addresses.py, they and n_bytes multiples
                                             of 16; without a branch, so that a warp's copies are one stretch of code
    wait_for_bytes(barrier, parity)          behind it, the bytes of the turn of that parity can be read

Should bytes never come, a wait ends the launch with the driver's error.  Does not know: what the bytes mean.
"""

import threading

import numpy as np

from strata.cuda.machine.seam import SIMULATED, clock_ns, jit, sync_warp

PATIENCE_NS = np.int64(2_000_000_000)
"""How long a warp waits for bytes."""

if SIMULATED:
    from strata.cuda.machine.simulated import PATIENCE_S, WARP
    from strata.cuda.machine.simulated_addresses import bytes_at

    _MEETING = threading.Condition()

    class _Barrier:
        """Arrivals and bytes that are still to come in this turn, and how many turns are over."""

        def __init__(self, n_arrivals):
            self.n_arrivals = self.to_arrive = int(n_arrivals)
            self.to_land = self.turns = 0

        def note(self, arrivals, n_bytes):
            self.to_arrive, self.to_land = self.to_arrive - arrivals, self.to_land + n_bytes
            if self.to_arrive == 0 and self.to_land == 0:
                self.to_arrive, self.turns = self.n_arrivals, self.turns + 1
                _MEETING.notify_all()

    def _barriers():
        return vars(threading.current_thread()._manager).setdefault("bulk_barriers", {})

    def _is_first():
        return threading.current_thread().thread_id % WARP == 0

    def set_up(barrier, n_arrivals):
        with _MEETING:
            _barriers()[barrier.byte] = _Barrier(n_arrivals)

    def take_down(barrier):
        with _MEETING:
            del _barriers()[barrier.byte]

    def arrive(barrier, n_bytes):
        if _is_first():
            with _MEETING:
                _barriers()[barrier.byte].note(1, int(n_bytes))

    def bulk_copy(to, source, n_bytes, barrier, is_wanted):
        if is_wanted and _is_first():
            bytes_at(to, n_bytes)[:] = bytes_at(source, n_bytes)
            with _MEETING:
                _barriers()[barrier.byte].note(0, -int(n_bytes))

    def _has_landed(barrier, parity):
        with _MEETING:
            return _MEETING.wait_for(lambda: (_barriers()[barrier.byte].turns & 1) != int(parity), PATIENCE_S / 2)

    def _stop():
        raise RuntimeError("bytes of a bulk copy did not come")

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    from strata.cuda.machine.intrinsics import VOID, WORD, _assembly, barrier_like

    ONE_THREAD = "{ .reg .pred chosen; elect.sync _|chosen, 0xffffffff;"
    ARRIVE = f"{ONE_THREAD} @chosen mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1; }}"
    COPY = (
        f"{ONE_THREAD} setp.ne.and.s32 chosen, $4, 0, chosen; "
        "@chosen cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3]; }"
    )
    LANDED = "{ .reg .pred landed; mbarrier.try_wait.parity.shared::cta.b64 landed, [$1], $2; selp.u32 $0, 1, 0, landed; }"

    def _instruction(text, constraints, *kinds):
        def emit(context, builder, signature, arguments):
            _assembly(builder, VOID, arguments, text, f"{constraints},~{{memory}}", True)
            return context.get_dummy_value()

        return types.void(*kinds), emit

    @intrinsic
    def set_up(typing_context, barrier, n_arrivals):
        text = "mbarrier.init.shared::cta.b64 [$0], $1; fence.proxy.async.shared::cta;"
        return _instruction(text, "l,r", types.int64, types.int32)

    @intrinsic
    def take_down(typing_context, barrier):
        return _instruction("mbarrier.inval.shared::cta.b64 [$0];", "l", types.int64)

    @intrinsic
    def arrive(typing_context, barrier, n_bytes):
        return _instruction(ARRIVE, "l,r", types.int64, types.int32)

    @intrinsic
    def bulk_copy(typing_context, to, source, n_bytes, barrier, is_wanted):
        return _instruction(COPY, "l,l,r,l,r", types.int64, types.int64, types.int32, types.int64, types.int32)

    @intrinsic
    def _has_landed(typing_context, barrier, parity):
        def emit(context, builder, signature, arguments):
            landed = _assembly(builder, WORD, arguments, LANDED, "=r,l,r,~{memory}", True)
            return builder.icmp_unsigned("!=", landed, ir.Constant(WORD, 0))

        return types.boolean(types.int64, types.int32), emit

    _stop = barrier_like("trap;")


@jit
def wait_for_bytes(barrier, parity):
    if not _has_landed(barrier, parity):
        began = clock_ns()
        while not _has_landed(barrier, parity):
            if clock_ns() - began > PATIENCE_NS:
                _stop()
    sync_warp()
