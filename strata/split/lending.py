"""The prompt buffers of an engine's devices: their own, or lent by the expert cache and filled in again.

`prepare` is called by whoever computes on a device, before every window of every stage there: a chunk gets its buffers, and
slots are lent for them where the device has none; any other window finds the cache whole, as the first thing that it does.
So a slot is lent and filled in between two windows of its device, by the thread that computes there; run serially, all devices
are filled in at once before a window begins (`refill`).  Does not know: requests, rounds.
"""

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from strata.experts.loans import is_chunk, loan_rows, slots_to_lend
from strata.rows import Window
from strata.split.tiers import DeviceTier


class Buffers(Protocol):
    """Buffers for chunks of up to `rows` rows, as executors of a device take them."""

    rows: int


class Layout(Protocol):
    """Which buffers a device's chunks have: `strata.host.chunk_buffers`, `strata.cuda.memory.chunk_buffers`."""

    row_bytes: int

    def bytes(self, rows: int) -> int: ...
    def buffers(self, rows: int, memory: Any) -> Buffers: ...


class DeviceLoan:
    """One device's prompt buffers, for chunks of up to `chunk_rows`; `own` memory uint8, None: borrowed from the tier's cache."""

    def __init__(self, tier: DeviceTier, executors: Sequence, layout: Layout, chunk_rows: int, own: Any) -> None:
        self.tier, self.layout, self.chunk_rows = tier, layout, chunk_rows
        self._executors = tuple(executors)
        self._own = None if own is None else layout.buffers(chunk_rows, own)
        self._lent: Buffers | None = None
        self.counters: Counter = Counter()

    @property
    def borrows(self) -> bool:
        return self._own is None

    @property
    def is_out(self) -> bool:
        """Whether slots are lent at present."""
        return self._lent is not None

    def prepare(self, window: Window) -> None:
        """Give a chunk its buffers; fill in what was lent before any other window.  The tier takes note of the window."""
        self.tier.prepare(window)
        if is_chunk(window.is_prompt, window.n_rows):
            buffers = self._own or self._borrowed(window.n_rows)
            self.counters["buffered_chunks"] += 1
        else:
            self.refill()
            buffers = None
        for executor in self._executors:
            executor.chunk_buffers = buffers

    def refill(self) -> None:
        """Take the slots back and load their experts; does nothing where nothing is lent."""
        if self._lent is None:
            return
        started = time.perf_counter()
        self._lent = None
        for executor in self._executors:
            executor.chunk_buffers = None
        self.counters["refilled_experts"] += self.tier.take_back()
        self.counters["refill_us"] += int(1e6 * (time.perf_counter() - started))

    def _borrowed(self, n_rows: int) -> Buffers:
        if self._lent is None or self._lent.rows < n_rows:
            rows = loan_rows(n_rows, self.chunk_rows)
            memory, n_new = self.tier.lend(slots_to_lend(self.layout.bytes(rows), self.tier.memory.slot_bytes))
            self.counters["loans"] += self._lent is None
            self.counters["lent_slots"] += n_new
            self._lent = self.layout.buffers(rows, memory)
        return self._lent


class Lending:
    """The prompt buffers of all devices of an engine."""

    def __init__(self, loans: Sequence[DeviceLoan]) -> None:
        self.loans = tuple(loans)
        self._helpers = ThreadPoolExecutor(len(loans), "strata-refill") if len(loans) > 1 else None

    def begin_run(self) -> None:
        """Forget what was counted before."""
        for loan in self.loans:
            loan.counters.clear()

    def refill(self) -> None:
        """Fill in what any device has lent, all of them at once; nothing may be computing."""
        out = [loan for loan in self.loans if loan.is_out]
        if len(out) < 2 or self._helpers is None:
            for loan in out:
                loan.refill()
            return
        for done in [self._helpers.submit(loan.refill) for loan in out]:
            done.result()

    def refill_before(self, window: Window) -> None:
        """Fill in everything before a window that is no chunk."""
        if not is_chunk(window.is_prompt, window.n_rows):
            self.refill()

    def counters(self) -> dict[str, int]:
        """Return `loans`, `lent_slots`, `refilled_experts`, `refill_us`, `buffered_chunks` of all devices together."""
        names = ("loans", "lent_slots", "refilled_experts", "refill_us", "buffered_chunks")
        return {name: sum(loan.counters[name] for loan in self.loans) for name in names}

    def close(self) -> None:
        """Stop the helpers."""
        if self._helpers is not None:
            self._helpers.shutdown()
